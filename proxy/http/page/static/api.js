// Requests to this server, with the visitor's keys, and errors that say what to do.

import { keys } from "./session.js";
import { eventsOf } from "./sse.js";

export class ApiError extends Error {
  constructor(status, error = {}, { retryAfter = null, decisions = [] } = {}) {
    super(typeof error.message === "string" ? error.message : `The server answered with status ${status}.`);
    this.status = status;
    this.code = error.code ?? null;
    this.param = error.param ?? null;
    this.type = error.type ?? null;
    this.retryAfter = retryAfter;
    this.decisions = decisions;
  }
}

// The connection ended before the answer did.
export class CutError extends Error {}

const DECISIONS = "X-Weir-Decisions";

// Whether decisions are asked for. A server that refuses them is not asked again, until the keys change.
let decisionsRefused = false;
keys.onChange(() => { decisionsRefused = false; });

export function seesDecisions() {
  return !decisionsRefused;
}

// The server has refused this visitor something else that is the operator's.
export function refuseDecisions() {
  decisionsRefused = true;
}

// `client`: the client's key, if it is another than the visitor's.
export async function getJson(path, { signal, client } = {}) {
  const response = await send(path, { signal, client });
  return response.json();
}

// The JSON documents of an endless stream.
export async function* follow(path, { signal }) {
  const response = await send(path, { signal });
  for await (const { data } of eventsOf(response)) yield JSON.parse(data);
}

// The events of a chat's answer up to `[DONE]`, each with a name and a value. Throws `CutError` without a `[DONE]`.
export async function* streamChat(body, { signal, client }) {
  let response;
  try {
    response = await post("v1/chat/completions", body, { signal, client });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 403 || decisionsRefused || !namesDecisions(error)) throw error;
    decisionsRefused = true;
    response = await post("v1/chat/completions", body, { signal, client });
  }
  try {
    for await (const { name, data } of eventsOf(response)) {
      if (data === "[DONE]") return;
      yield { name, value: JSON.parse(data) };
    }
  } catch (error) {
    throw signal.aborted ? error : new CutError();
  }
  throw new CutError();
}

function namesDecisions(error) {
  return `${error.message} ${error.param ?? ""}`.toLowerCase().includes(DECISIONS.toLowerCase());
}

function post(path, body, options) {
  const headers = { "Content-Type": "application/json" };
  if (!decisionsRefused) headers[DECISIONS] = "true";
  return send(path, { method: "POST", body: JSON.stringify(body), headers, ...options });
}

export async function send(path, { headers = {}, client = keys.client, admin = keys.admin, ...options }) {
  if (client) headers["Authorization"] = `Bearer ${client}`;
  if (admin) headers["X-Weir-Admin-Key"] = admin;
  const response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store" });
  if (!response.ok) throw await errorOf(response);
  return response;
}

// What is wrong with keys that the visitor enters, by name. A key that is not given is not asked about.
export async function keyFaults({ client, admin }) {
  const found = {};
  if (client && (await statusOf("v1/models", { client, admin: "" })) === 401) found.client = "The server does not know this key.";
  // Where the operator has a port of their own, another port knows nothing of the key: that is no fault.
  const status = admin ? await statusOf("admin/policies", { client: "", admin }) : 200;
  if (status === 401) found.admin = "The server does not know this admin key.";
  if (status === 403) found.admin = "This server has no admin key (--admin-key).";
  return found;
}

async function statusOf(path, options) {
  try {
    await send(path, options);
    return 200;
  } catch (error) {
    return error.status ?? null;  // null: nothing is known of the key while the server cannot be reached
  }
}

async function errorOf(response) {
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  const retryAfter = Number.isFinite(seconds) ? seconds : null;
  try {
    const { error, weir_decisions: decisions } = await response.json();
    return new ApiError(response.status, error, { retryAfter, decisions });
  } catch {
    return new ApiError(response.status, {}, { retryAfter });  // the body is not JSON: its status says enough
  }
}

// The advice for an error: a title and a sentence.
export function explain(error) {
  if (error instanceof CutError) {
    return { title: "The stream was cut.", text: "The connection ended before the answer did." };
  }
  if (!(error instanceof ApiError)) {
    return { title: "The server cannot be reached", text: "The connection failed. The server may have stopped." };
  }
  const { status, code, message } = error;
  if (code === "content_filter") return { title: "A guard refused this message", text: message };
  if (status === 401) return { title: "A key is needed", text: message, needsKey: true };
  if (status === 403) return { title: "This is not allowed", text: message };
  if (status === 404) return { title: "Not found", text: message };
  if (status === 429) {
    const wait = error.retryAfter ? ` The server asks to wait ${error.retryAfter} s.` : "";
    return { title: "Too many requests", text: message + wait };
  }
  if (status === 503) return { title: "The server is not ready", text: message };
  if (error.type === "guardrail_error") return { title: "A guard failed, so the answer ended.", text: "" };
  if (status === 200) return { title: "The answer broke off.", text: message };
  return { title: status >= 500 ? "The server had an error" : "The request was refused", text: message };
}
