/* A log of opaque events in C, and the driver by which torntail tests it.
 *
 *     cc -O2 -o /tmp/example drivers/c/example.c
 *     torntail certify --exec /tmp/example --level power
 *
 * One file a session, one line an event: its checksum, and its JSON as it came. An append is on the
 * disk when it is answered; the next call cuts what a crash has torn. docs/driver-protocol.md */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "text.h"
typedef struct { unsigned long long key; ino_t inode; } Met;
typedef struct { long number; char root[4096]; int dead; Met met[64]; } Store;
static Store stores[1024];

static const char *hello =
    "{\"protocol\":1,\"name\":\"c example\",\"version\":\"1\",\"capabilities\":{\"profile\":\"log\",\"detects\":[],"
    "\"writers\":\"one-unchecked\",\"header\":false,\"creates\":\"implicit\",\"repairs\":\"none\",\"lists\":false,"
    "\"lazy\":false,\"inspects\":false,\"forks\":false}}";

static void fail(long id, const char *kind, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format), vsnprintf(text, sizeof text, format, arguments), va_end(arguments);
    for (char *p = text; *p; p++) if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ' || *p & 0x80) *p = '\'';
    printf("{\"id\":%ld,\"error\":{\"kind\":\"%s\",\"message\":\"%s\"}}\n", id, kind, text);
}
static void done(long id) { printf("{\"id\":%ld,\"result\":{}}\n", id); }
static int sync_directory(const char *path) {
    int directory = open(path, O_RDONLY | O_DIRECTORY), failed = directory < 0 || fsync(directory);
    return directory < 0 || close(directory) || failed;
}
/* What stands in a log: its events, in memory, up to the first line that is not whole. */
static long read_log(int file, char **content, size_t *good) {
    off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
    long events = 0;
    *content = calloc(1, size + 1);
    for (ssize_t got, all = 0; all < size; all += got)
        if ((got = pread(file, *content + all, size - all, all)) <= 0) return -1;
    for (char *line = *content, *end; (end = memchr(line, '\n', *content + size - line)); events++) {
        Text event = {line + 17, end - line > 17 ? end - line - 17 - (end[-1] == '\r') : 0};
        if (event.length == 0 || strtoull(line, NULL, 16) != checksum(event) || line[16] != ' ') break;
        *good = (line = end + 1) - *content;
    }
    return events;
}
static void load(long id, Store *store, int file) {
    char *content = NULL;
    size_t good = 0;
    int wrong = read_log(file, &content, &good) < 0, torn = good < (size_t)lseek(file, 0, SEEK_END);
    /* What cannot be cut off is left out all the same, and nothing is written behind it. */
    if (!wrong && torn && (ftruncate(file, good) || fsync(file))) store->dead = 1;
    if (wrong) fail(id, "storage", "the log: %s", strerror(errno));
    else {
        printf("{\"id\":%ld,\"result\":{\"header\":null,\"events\":[", id);
        for (char *line = content, *end; line < content + good; line = end + 1) {
            end = memchr(line, '\n', content + good - line);
            printf("%s%.*s", line == content ? "" : ",", (int)(end - line - 17), line + 17);
        }
        printf("]}}\n");
    }
    close(file), free(content);
}
/* Whether a log is not the file that it was when this store met it first. */
static int is_another(Store *store, const char *path, int file) {
    unsigned long long key = checksum((Text){path, strlen(path)});
    struct stat now = {0};
    Met *met = &store->met[key % 64];
    if (file >= 0) fstat(file, &now);
    if (met->key == key) return met->inode != now.st_ino;
    if (file >= 0) *met = (Met){key, now.st_ino};
    return 0;
}
static void append(long id, Store *store, const char *path, int file, const char *events) {
    char *content = NULL, *batch = NULL, expected[32], parent[4200];
    size_t good = 0, size = 0;
    long next = read_log(file, &content, &good);
    FILE *lines = open_memstream(&batch, &size);
    for (const char *p = events + 1; *p == '{'; next++) {
        int deepest = 0;
        Text event = {p, skip(p, &deepest) - p}, type = member(p, "type"), seq = member(p, "seq");
        int timed = number(member(p, "time"));
        p += event.length + (p[event.length] == ',');
        snprintf(expected, sizeof expected, "%ld", next);
        if (next >= 0 && deepest <= 200 && !is(type, "\"\"") && timed && is(seq, expected)) {
            fprintf(lines, "%016llx %.*s\n", checksum(event), (int)event.length, event.at);
            continue;
        }
        const char *kind = next < 0 ? "storage" : number(seq) && !is(seq, expected) ? "sequence" : "not_serializable";
        fail(id, kind, "event %.*s: expected seq %ld, got %.*s", (int)type.length, type.at, next,
             (int)seq.length, seq.at);
        goto end;
    }
    fflush(lines);
    if (file < 0) file = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0600), is_another(store, path, file);
    int wrong = ftruncate(file, good), synced = 0;
    for (size_t written = 0; !wrong && written < size;) {
        ssize_t more = pwrite(file, batch + written, size - written, good + written);
        wrong = more < 0 && errno != EINTR;
        written += more > 0 ? more : 0; /* A write may come short. */
    }
    snprintf(parent, sizeof parent, "%s/..", store->root);
    if (!wrong) wrong = synced = fsync(file) || sync_directory(store->root) || sync_directory(parent);
    if (wrong) fail(id, "storage", "append: %s", strerror(errno));
    else done(id);
    if (wrong) store->dead = ftruncate(file, good) || fsync(file) || synced; /* No later fsync makes it good. */
end:
    close(file), fclose(lines), free(batch), free(content);
}
int main(void) {
    char *line = NULL, path[5000];
    for (size_t room = 0; getline(&line, &room, stdin) > 0; fflush(stdout)) {
        long id = atol(member(line, "id").at), handle = atol(member(line, "store").at);
        Text call = member(line, "call"), session = member(line, "session"), root = member(line, "root");
        Text events = member(line, "events");
        Store *store = &stores[handle % 1024];
        if (is(call, "\"hello\"")) printf("{\"id\":%ld,\"result\":%s}\n", id, hello);
        else if (is(call, "\"open\"")) {
            *store = (Store){.number = handle};
            snprintf(store->root, sizeof store->root, "%.*s", (int)root.length - 2, root.at + 1);
            done(id);
        } else if (is(call, "\"close\"")) store->root[0] = 0, done(id);
        else if (store->number != handle || !store->root[0]) fail(id, "closed", "the store is closed");
        else if (is(events, "[]")) done(id);
        else if (session.length < 3 || session.length > 102)
            fail(id, "other", "the id is empty or too long: %.80s", session.at);
        else {
            int used = snprintf(path, sizeof path, "%s/", store->root);
            for (size_t at = 1; at < session.length - 1; at++) /* The id as hexadecimal digits is its name. */
                used += sprintf(path + used, "%02x", (unsigned char)session.at[at]);
            int file = open(path, O_RDWR | O_CLOEXEC), missing = file < 0 && errno == ENOENT;
            int appends = is(call, "\"append\"");
            if (file < 0 && !missing) file = open(path, O_RDONLY | O_CLOEXEC); /* Enough to load. */
            if (appends && (store->dead || is_another(store, path, file))) {
                fail(id, "storage", "an fsync failed, or the log was replaced: open the store anew");
                if (file >= 0) close(file);
            } else if (appends && (file >= 0 || missing)) append(id, store, path, file, events.at);
            else if (file < 0) fail(id, missing ? "not_found" : "storage", "not found: %s", strerror(errno));
            else if (is(call, "\"load\"")) load(id, store, file);
            else fail(id, "other", "there is no call %.*s", (int)call.length, call.at);
        }
    }
}
