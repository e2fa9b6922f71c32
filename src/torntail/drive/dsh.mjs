// The driver of the session persistence packages of the DeepSeek Harness.
//
//     node dsh.mjs FOLDER jsonl [zstd] [packed]
//     node dsh.mjs FOLDER sqlite [wal|delete|truncate|persist]
//
// FOLDER is where `python -m torntail.drive.dsh install` put the packages, which stay as they are.
// Each store is a context of its own with the session store and one persistence plugin in it. The
// shapes of events are theirs (docs/driver-protocol.md, `dialect`); the errors, which the packages
// tell apart by text, get their kinds here.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, backend, ...settings] = process.argv.slice(2);

// What they log to the standard output would be taken for an answer.
for (const name of ["log", "info", "debug"]) console[name] = console.error;
process.stdout.write = process.stderr.write.bind(process.stderr);

const packages = createRequire(path.join(path.resolve(folder), "package.json"));

async function load(name) {
  const file = packages.resolve(`@deepseek-ai/${name}`);
  return import(pathToFileURL(file).href);
}

function versionOf(name) {
  const file = path.join(folder, "node_modules/@deepseek-ai", name, "package.json");
  return JSON.parse(fs.readFileSync(file)).version;
}

const { Context } = await load("cordis");
const { default: SessionStore } = await load("dsh-session");
const name = `dsh-session-persistence-${backend}`;
const { default: Persistence } = await load(name);

function configuration(root) {
  if (backend === "sqlite") {
    return { path: path.join(root, "sessions.db"), journalMode: settings[0] ?? "wal" };
  }
  return {
    root,
    compression: settings.includes("zstd") ? "zstd" : "none",
    packChunks: settings.includes("packed"),
  };
}

// --- errors --------------------------------------------------------------------------------------

class Refusal extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

// The first that fits; the text of a wrapped error is part of the text around it.
const kinds = [
  ["not_found", /^session .* not found$/s],
  ["exists", /already exists|already has a persisted log|refusing to materialize/],
  ["sequence", /append seq mismatch/],
  ["conflict", /UNIQUE constraint failed|database is locked|preparation is reserved/],
  ["not_serializable", /JSON-serializable/],
  ["version", /uses log format v|schema version/],
  ["identity", /identity mismatch|does not match header id|identif|multiple project directories/],
  ["never_materialised", /header-less/],
  ["corrupted", /corrupt|failed validation|malformed|not a database|disk image/],
];

function kindOf(error) {
  if (error.kind) return error.kind;
  if (error.syscall) return "storage";
  const found = kinds.find(([, pattern]) => pattern.test(error.message));
  if (found) return found[0];
  return error.code === "ERR_SQLITE_ERROR" ? "storage" : "other";
}

function factsOf(error) {
  const seqs = /expected (\d+) at index \d+, got (\S+)/.exec(error.message);
  if (seqs) return { expected: Number(seqs[1]), got: Number(seqs[2]) };
  const place = /at (?:line|seq) (\d+)/.exec(error.message);
  return place ? { line: Number(place[1]) } : {};
}

// --- stores --------------------------------------------------------------------------------------

const stores = new Map();

async function open(root) {
  const context = new Context();
  await context.plugin(SessionStore);
  await context.plugin(Persistence, configuration(root));
  const persistence = context.get("sessionPersistence");
  if (!persistence) {
    await context.fiber.dispose();
    throw new Refusal("other", "the persistence plugin did not start");
  }
  // The SQLite plugin opens its database after it has started. If that fails while no call waits
  // for it, the rejection is unhandled and ends the process; so one call waits from the beginning.
  if (backend === "sqlite") {
    try {
      await persistence.list();
    } catch (error) {
      await context.fiber.dispose().catch(() => {});
      throw error;
    }
  }
  return { context, persistence };
}

function headerLine(meta) {
  return { type: "session", ...meta };
}

async function result(request) {
  if (request.call === "hello") {
    return {
      protocol: 1,
      name: [name, ...settings].join(" "),
      version: versionOf(name),
      capabilities: {
        values: "i-json",
        writers: "one-unchecked",
        forks: false,
        atomic_batch: backend === "sqlite",
      },
      dialect: backend === "sqlite" ? "dsh-rc1" : "dsh-rc8",
    };
  }
  if (request.call === "open") {
    stores.set(request.store, await open(request.root));
    return {};
  }
  const store = stores.get(request.store);
  if (request.call === "close" && stores.has(request.store)) {
    stores.set(request.store, null);
    await store?.context.fiber.dispose();
    return {};
  }
  if (!store) throw new Refusal("closed", `the store ${request.store} is closed`);
  const { persistence } = store;
  switch (request.call) {
    case "create": {
      const { type, ...meta } = request.header;
      await persistence.create(meta);
      return {};
    }
    case "append":
      await persistence.append(request.session, request.events);
      return {};
    case "load":
    case "inspect": {
      const { meta, events } = await persistence[request.call](request.session);
      return { header: headerLine(meta), events };
    }
    case "list": {
      const found = await persistence.list();
      return { sessions: found.map((meta) => ({ session: meta.id, header: headerLine(meta) })) };
    }
  }
  throw new Refusal("other", `there is no call ${request.call}`);
}

async function answer(line) {
  const request = JSON.parse(line);
  try {
    return { id: request.id, result: await result(request) };
  } catch (error) {
    const { name, message } = error;
    return { id: request.id, error: { kind: kindOf(error), name, message, facts: factsOf(error) } };
  }
}

// --- lines ---------------------------------------------------------------------------------------

function write(text) {
  const content = Buffer.from(text);
  for (let done = 0; done < content.length; ) {
    try {
      done += fs.writeSync(1, content, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

let begun = [];
for await (const piece of process.stdin) {
  let rest = piece;
  for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
    const line = Buffer.concat([...begun, rest.subarray(0, end)]).toString();
    begun = [];
    write(JSON.stringify(await answer(line)) + "\n");
  }
  begun.push(rest);
}
process.exit(0);
