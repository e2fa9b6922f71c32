// A session store in one file, and the driver by which torntail tests it. No dependencies.
//
//     torntail certify --exec "node drivers/node/example.mjs" --level power
//
// Copy it: the last part speaks the protocol (docs/driver-protocol.md), the parts before are the
// store. One JSON Lines file a session; an append is on the disk when it returns; a torn tail is
// cut and an interrupted turn closed by `load`. One writer at a time, which it does not check.

import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";

class Refusal extends Error {
  constructor(kind, message, facts = {}) {
    super(message);
    Object.assign(this, { kind, facts });
  }
}

// --- files ---------------------------------------------------------------------------------------

function syncDirectory(directory) {
  const descriptor = fs.openSync(directory, "r");
  try {
    fs.fsyncSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

function writeAll(descriptor, content) {
  for (let done = 0; done < content.length; ) {
    done += fs.writeSync(descriptor, content, done); // A write may come short.
  }
}

// Appends bytes (or cuts to a length), durably.
function change(file, { flags = "a", content = Buffer.alloc(0), length = null }) {
  const descriptor = fs.openSync(file, flags, 0o600);
  try {
    if (length !== null) fs.ftruncateSync(descriptor, length);
    writeAll(descriptor, content);
    try {
      fs.fsyncSync(descriptor);
    } catch (error) {
      error.unsynced = true;
      throw error;
    }
  } finally {
    fs.closeSync(descriptor);
  }
}

// Any id as a file name, no two alike, and back.
function nameOf(id) {
  const unsafe = id === "." || id === ".." ? /[^]/g : /[^A-Za-z0-9._-]/g;
  const escaped = id.replace(unsafe, (one) =>
    [...Array(one.length).keys()]
      .map((at) => "~" + one.charCodeAt(at).toString(16).toUpperCase().padStart(4, "0"))
      .join(""),
  );
  return escaped + ".jsonl";
}

function idOf(name) {
  const text = name.replace(/\.jsonl$/, "");
  const id = text.replace(/~([0-9A-F]{4})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
  return name.endsWith(".jsonl") && id && nameOf(id) === name ? id : null;
}

// --- records -------------------------------------------------------------------------------------

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function depth(value) {
  if (value === null || typeof value !== "object") return 0;
  let deepest = 0;
  for (const member of Object.values(value)) deepest = Math.max(deepest, depth(member));
  return deepest + 1;
}

// The value of a line, if the line is as this store writes it: so there is no repeated key in it,
// no number out of range, no invalid text.
function parse(line) {
  try {
    const text = utf8.decode(line.at(-1) === 13 ? line.subarray(0, -1) : line);
    const value = JSON.parse(text);
    return JSON.stringify(value) === text && depth(value) <= 200 ? value : null;
  } catch {
    return null;
  }
}

function eventProblem(event) {
  if (event === null || typeof event !== "object" || Array.isArray(event)) return "is no object";
  if (typeof event.type !== "string" || !event.type) return "has no type";
  if (!Number.isSafeInteger(event.seq) || event.seq < 0) return "has no seq";
  if (typeof event.time !== "number" || !Number.isFinite(event.time)) return "has no time";
  if (!("data" in event)) return "has no data";
  if (depth(event) > 200) return "is nested deeper than 200 levels";
  return null;
}

function parseEvent(line) {
  const event = parse(line);
  return event !== null && eventProblem(event) === null ? event : null;
}

function parseHeader(line) {
  const header = parse(line);
  const whole = header?.type === "session" && Number.isInteger(header.version);
  return whole && typeof header.id === "string" && typeof header.createdAt === "number"
    ? header
    : null;
}

function headerOf(content) {
  const newline = content.indexOf(10);
  return parseHeader(newline < 0 ? content : content.subarray(0, newline));
}

// Whether its first flush never ended: there is not even one whole line.
function neverMaterialised(content) {
  return content.indexOf(10) < 0 && headerOf(content) === null;
}

// The end of the JSON object that a line begins with.
function objectEnd(line) {
  let level = 0;
  let quoted = false;
  for (let at = 0; at < line.length; at++) {
    const byte = line[at];
    if (quoted) {
      if (byte === 92) at++;
      else if (byte === 34) quoted = false;
    } else if (byte === 34) quoted = true;
    else if (byte === 123 || byte === 91) level++;
    else if ((byte === 125 || byte === 93) && --level <= 0) return at + 1;
  }
  return null;
}

// --- reading a log -------------------------------------------------------------------------------

// The header, the events, and where the log has to be cut or completed. Refuses what no crash did.
function scan(content, id, name) {
  const newline = content.indexOf(10);
  const header = headerOf(content);
  if (neverMaterialised(content)) {
    throw new Refusal("never_materialised", `session ${id} was never materialised: ${name}`);
  }
  if (header === null) throw corrupted(id, name, 1, "it is no header");
  if (header.version !== 0) {
    throw new Refusal("version", `session ${id} has version ${header.version}, not 0`);
  }
  if (header.id !== id) {
    throw new Refusal("identity", `the header of ${name} is that of session ${header.id}`);
  }
  const lines = [];
  for (let start = newline < 0 ? content.length : newline + 1; start < content.length; ) {
    const end = content.indexOf(10, start);
    const bytes = content.subarray(start, end < 0 ? content.length : end);
    lines.push({ start, bytes, whole: end >= 0, event: end < 0 ? null : parseEvent(bytes) });
    start = end < 0 ? content.length : end + 1;
  }
  const committed = lines.findLastIndex((line) => line.event?.type === "turn/end");
  const found = { header, events: [], length: content.length, newline: newline < 0, torn: null };
  for (const [index, line] of lines.entries()) {
    if (line.event === null) {
      if (index <= committed) throw corrupted(id, name, index + 2, "it does not parse");
      tear(found, content, lines, index);
      break;
    }
    if (line.event.seq !== index) {
      const what = `expected seq ${index}, found ${line.event.seq}`;
      throw corrupted(id, name, index + 2, what);
    }
    found.events.push(line.event);
  }
  return found;
}

function corrupted(id, name, line, reason) {
  const text = `session ${id} is corrupted at line ${line} of ${name}: ${reason}`;
  return new Refusal("corrupted", text, { line });
}

// What is kept of the first line that does not parse: a whole record that it begins with.
function tear(found, content, lines, index) {
  const { start, bytes } = lines[index];
  const end = objectEnd(bytes);
  const event = end === null ? null : parseEvent(bytes.subarray(0, end));
  let from = start;
  if (event !== null && event.seq === index) {
    found.events.push(event);
    found.newline = true;
    from += end;
  }
  found.length = from;
  if (from < content.length) {
    const later = lines.slice(index + 1).some((line) => line.event !== null);
    const holds = later || (event !== null && event.seq !== index);
    found.torn = { line: index + 2, byte: from, bytes: content.subarray(from), holds };
  }
}

// --- closing an interrupted turn -----------------------------------------------------------------

function closers(events) {
  let turn = null;
  let step = null;
  let pending = new Map();
  for (const { type, seq, data } of events) {
    if (type === "turn/start") [turn, step, pending] = [data.turn, null, new Map()];
    else if (type === "turn/end") [turn, step, pending] = [null, null, new Map()];
    else if (type === "step/start") step = data.step;
    else if (type === "step/end") [step, pending] = [null, new Map()];
    else if (type === "assistant/message") {
      for (const block of Array.isArray(data.content) ? data.content : []) {
        if (block?.type === "tool-call") pending.set(block.id, { step: data.step });
      }
    } else if (type === "tool/call" && pending.has(data.callId)) {
      pending.get(data.callId).seq = seq;
    } else if (type === "tool/result") pending.delete(data.callId);
  }
  if (turn === null) return [];
  const { seq, time } = events.at(-1);
  const made = [];
  const add = (type, data, more = {}) =>
    made.push({ type, seq: seq + 1 + made.length, time, data, ...more });
  for (const [callId, call] of pending) {
    const text = "Tool call interrupted by a crash; no result was recorded.";
    const error = { name: "InterruptedError", code: "interrupted" };
    const content = [{ type: "text", text }];
    const sources = call.seq === undefined ? {} : { sourceEventSeqs: [call.seq] };
    const data = { turn, step: call.step, callId, content, isError: true, error };
    add("tool/result", data, { surfaceOp: "append", ...sources });
  }
  if (step !== null) add("step/end", { turn, step });
  add("turn/end", { turn, reason: { kind: "interrupted" } });
  return made;
}

// --- the store -----------------------------------------------------------------------------------

class Store {
  constructor(root) {
    this.root = root;
    this.announced = new Map(); // Headers of sessions that have no event yet.
    this.writers = new Map(); // What this object has written: its next seq, its file and length.
    this.dead = new Set(); // Sessions of which an fsync failed: only another object may go on.
  }

  file(id) {
    if (typeof id !== "string" || !id) throw new Refusal("other", "a session needs an id");
    const name = nameOf(id);
    if (name.length > 200) throw new Refusal("other", `the id is too long: ${id.slice(0, 60)}`);
    return path.join(this.root, name);
  }

  read(id) {
    try {
      return fs.readFileSync(this.file(id));
    } catch (error) {
      if (error.code === "ENOENT" && fs.statSync(this.root).isDirectory()) {
        throw new Refusal("not_found", `session ${id} not found`);
      }
      throw error;
    }
  }

  create(header) {
    const file = this.file(header.id);
    const stored = fs.existsSync(file) && !neverMaterialised(fs.readFileSync(file));
    if (stored || this.announced.has(header.id)) {
      throw new Refusal("exists", `session ${header.id} exists already`);
    }
    this.announced.set(header.id, header); // Nothing is stored before the first event.
  }

  append(id, events) {
    const file = this.file(id);
    if (events.length === 0) return;
    for (const event of events) {
      const problem = eventProblem(event);
      if (problem === null) continue;
      const text = `event ${event?.type} (seq ${event?.seq}) ${problem}`;
      throw new Refusal("not_serializable", text);
    }
    this.checkAlive(id);
    const first = this.announced.get(id);
    if (first === undefined && !this.writers.has(id)) {
      this.load(id);
      if (!this.writers.has(id)) {
        throw new Refusal("storage", `session ${id} could not be repaired: load it again`);
      }
    }
    const writer = this.writers.get(id) ?? { seq: 0, length: 0 };
    for (const [index, event] of events.entries()) {
      if (event.seq !== writer.seq + index) {
        const text = `expected seq ${writer.seq + index}, got ${event.seq}`;
        throw new Refusal("sequence", text, { expected: writer.seq + index, got: event.seq });
      }
    }
    try {
      if (first !== undefined) this.firstFlush(file, first, events);
      else this.appendTo(file, writer, events);
    } catch (error) {
      if (error.unsynced) this.dead.add(id);
      throw error;
    }
    this.announced.delete(id);
    this.writers.set(id, { seq: writer.seq + events.length, ...markOf(file) });
  }

  // Bytes of which an fsync failed are not made durable by another one, so this object is done.
  checkAlive(id) {
    if (!this.dead.has(id)) return;
    throw new Refusal("storage", `an fsync of session ${id} failed: open the store anew`);
  }

  // The whole log under another name first: a crash leaves all of it or nothing.
  firstFlush(file, header, events) {
    const temporary = file + ".tmp";
    fs.rmSync(temporary, { force: true });
    const content = [header, ...events].map((one) => JSON.stringify(one) + "\n").join("");
    change(temporary, { flags: "wx", content: Buffer.from(content) });
    this.setAside(file);
    fs.renameSync(temporary, file);
    try {
      this.syncNames();
    } catch (error) {
      fs.rmSync(file); // It raises, so nothing of it may come to light.
      throw error;
    }
  }

  // A log that never had a header is no log; what there is of it is kept under another name.
  setAside(file) {
    if (fs.existsSync(file)) fs.renameSync(file, `${file}.${digest(fs.readFileSync(file))}.torn`);
  }

  // A `turn/end` is written only when all before it is on the disk: were it there and something
  // before it not, the log would be taken for corrupted.
  appendTo(file, writer, events) {
    const now = markOf(file);
    if (writer.dead || now.length !== writer.length || now.inode !== writer.inode) {
      throw new Refusal("storage", `${file} failed, or is not as it was left: load it again`);
    }
    try {
      for (let start = 0, end = 1; start < events.length; end++) {
        if (end < events.length && events[end].type !== "turn/end") continue;
        const lines = events.slice(start, end).map((one) => JSON.stringify(one) + "\n");
        change(file, { content: Buffer.from(lines.join("")) });
        start = end;
      }
    } catch (error) {
      writer.dead = true;
      change(file, { flags: "r+", length: writer.length });
      writer.dead = error.unsynced === true; // What a failed fsync was for may be gone.
      throw error;
    }
  }

  load(id) {
    return this.inspect(id, true);
  }

  inspect(id, mend = false) {
    const file = this.file(id);
    if (this.announced.has(id) && !fs.existsSync(file)) {
      throw new Refusal("not_found", `session ${id} not found: it has no event yet`);
    }
    const content = this.read(id);
    const { header, events, length, newline, torn } = scan(content, id, path.basename(file));
    const ending = closers(events);
    let durable = mend && !this.dead.has(id);
    if (durable && (torn !== null || newline || ending.length > 0 || !this.writers.has(id))) {
      try {
        this.settle(file);
        if (torn?.holds) this.keepCopy(file, torn);
        if (torn !== null) change(file, { flags: "r+", length });
        if (newline) change(file, { content: Buffer.from("\n") });
        this.appendTo(file, markOf(file), ending);
        this.writers.set(id, { seq: events.length + ending.length, ...markOf(file) });
        this.announced.delete(id);
      } catch (error) {
        // What was read is told all the same; nobody may append before a repair succeeds.
        if (error.unsynced) this.dead.add(id);
        this.writers.delete(id);
        durable = false;
      }
    }
    const mended = torn !== null || newline || ending.length > 0 || durable !== mend;
    const repair = mended
      ? {
          tornFromLine: torn?.line ?? null,
          tornFromByte: torn?.byte ?? null,
          tornBytes: torn?.bytes.length ?? 0,
          copyKept: torn?.holds ?? false,
          newlineAdded: newline,
          durable,
        }
      : undefined;
    return { header, events: [...events, ...ending], repair };
  }

  // What a killed process wrote may be in memory only: before more is built on it, it is synced.
  settle(file) {
    change(file, { flags: "r+" });
    this.syncNames();
  }

  keepCopy(file, torn) {
    const copy = file.replace(/jsonl$/, `${torn.byte}.${digest(torn.bytes)}.torn`);
    fs.rmSync(copy + ".tmp", { force: true });
    change(copy + ".tmp", { flags: "wx", content: torn.bytes });
    fs.renameSync(copy + ".tmp", copy);
    syncDirectory(this.root);
  }

  syncNames() {
    syncDirectory(this.root);
    syncDirectory(path.dirname(this.root));
  }

  list() {
    const sessions = [];
    for (const name of fs.readdirSync(this.root)) {
      const session = idOf(name);
      if (session === null) continue;
      const content = fs.readFileSync(path.join(this.root, name));
      if (neverMaterialised(content)) continue;
      const header = headerOf(content);
      if (header === null) sessions.push({ session, error: "corrupted" });
      else if (header.id !== session) sessions.push({ session, header, error: "identity" });
      else sessions.push({ session, header });
    }
    return sessions;
  }
}

// Which file it is, and how long: another one of that name is not what was written to.
function markOf(file) {
  const found = fs.statSync(file, { throwIfNoEntry: false });
  return { inode: found?.ino, length: found?.size };
}

function digest(content) {
  return crypto.createHash("sha256").update(content).digest("hex").slice(0, 16);
}

// --- the driver ----------------------------------------------------------------------------------

const stores = new Map();

function result(request) {
  if (request.call === "hello") {
    return {
      protocol: 1,
      name: "node example",
      version: "1",
      capabilities: { values: "i-json", writers: "one-unchecked", forks: false },
    };
  }
  if (request.call === "open") {
    stores.set(request.store, new Store(request.root));
    return {};
  }
  if (request.call === "close") {
    stores.set(request.store, null);
    return {};
  }
  const store = stores.get(request.store);
  if (!store) throw new Refusal("closed", `the store ${request.store} is closed`);
  switch (request.call) {
    case "create":
      return store.create(request.header) ?? {};
    case "append":
      return store.append(request.session, request.events) ?? {};
    case "load":
      return store.load(request.session);
    case "inspect":
      return store.inspect(request.session);
    case "list":
      return { sessions: store.list() };
  }
  throw new Refusal("other", `there is no call ${request.call}`);
}

function answer(line) {
  const request = JSON.parse(line);
  try {
    return { id: request.id, result: result(request) };
  } catch (error) {
    const kind = error.kind ?? (error.syscall ? "storage" : "other");
    const { message, facts = {} } = error;
    return { id: request.id, error: { kind, name: error.name, message, facts } };
  }
}

// Lines end at byte 10 and nowhere else: node:readline would split them at U+2028, too.
const buffer = Buffer.alloc(1 << 16);
let begun = [];
for (let read; (read = fs.readSync(0, buffer)) > 0; ) {
  let rest = buffer.subarray(0, read);
  for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
    const line = Buffer.concat([...begun, rest.subarray(0, end)]);
    begun = [];
    writeAll(1, Buffer.from(JSON.stringify(answer(line.toString())) + "\n"));
  }
  begun.push(Buffer.from(rest));
}
