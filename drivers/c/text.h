/* Pieces of a line: JSON that is known to be right, read in place, and a checksum. */
#include <string.h>

typedef struct { const char *at; size_t length; } Text; /* A piece of a line, as it stands there. */

/* The end of the JSON value at p; *deepest, if wanted, becomes how many levels it has. */
static const char *skip(const char *p, int *deepest) {
    int level = 0, ignored = 0;
    if (!deepest) deepest = &ignored;
    do {
        if (*p == '"') { for (p++; *p != '"'; p++) if (*p == '\\') p++; p++; }
        else if (*p == '{' || *p == '[') { p++; if (++level > *deepest) *deepest = level; }
        else if (*p == '}' || *p == ']') { p++; level--; }
        else if (level) p++;
        else while (*p && !strchr(",]}", *p)) p++;
    } while (level);
    return p;
}
static Text member(const char *object, const char *name) {
    for (const char *p = object + 1; *p == '"';) {
        const char *key = p + 1, *value = skip(p, NULL) + 1, *end = skip(value, NULL);
        if (!strncmp(key, name, strlen(name)) && key[strlen(name)] == '"') return (Text){value, end - value};
        p = end + (*end == ',');
    }
    return (Text){"null", 4};
}
static int number(Text text) { return strchr("-0123456789", *text.at) != NULL; }
static int is(Text a, const char *b) { return a.length == strlen(b) && !memcmp(a.at, b, a.length); }
static unsigned long long checksum(Text text) {
    unsigned long long sum = 14695981039346656037u;
    for (size_t at = 0; at < text.length; at++) sum = (sum ^ (unsigned char)text.at[at]) * 1099511628211u;
    return sum;
}
