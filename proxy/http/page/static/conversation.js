// A conversation that is kept: over a reload in this tab, as JSON, and as a recording for `weir replay`.

const PLACE = "weir.conversation";
const VERSION = 1;

// Turns and the setup, as `Setup.json` has it. Tokens are left out if the browser has no room for them, and then
// the oldest turns.
export function keep(turns, setup) {
  let kept = turns.map(({ text, sides }) => ({ text, sides: sides.map((side) => side.json) }));
  if (put(kept, setup)) return;
  for (const { sides } of kept) for (const { answer } of sides) answer.records = joined(answer.records);
  while (!put(kept, setup) && kept.length) kept = kept.slice(1);
}

function put(kept, setup) {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify({ version: VERSION, turns: kept, setup }));
    return true;
  } catch {
    sessionStorage.removeItem(PLACE);  // the browser has no room: an older state would be no help
    return false;
  }
}

export function kept() {
  const { version, turns, setup = {} } = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
  return version === VERSION ? { turns, setup } : { turns: [], setup: {} };
}

// Records without tokens, those of one text as one.
function joined(records) {
  const found = [];
  for (const { tokens, ...record } of records) {
    const last = found.at(-1);
    if (record.kind === "text" && last?.kind === "text" && last.channel === record.channel && !record.title) last.text += record.text;
    else if (record.kind !== "tokens") found.push({ ...record, tokens: [] });
  }
  return found;
}

export function conversationJson(turns) {
  return JSON.stringify({
    version: VERSION,
    turns: turns.map(({ text, sides }) => ({ message: text, answers: sides.map(answerJson) })),
  }, null, 2);
}

function answerJson(side) {
  const { answer, lane, notice } = side;
  const calls = [...answer.blocks].filter(([channel, block]) => channel.startsWith("tool_call") && block.isBegun);
  return {
    model: lane.fields.model,
    system: lane.system || null,
    request_id: answer.requestId,
    content: answer.content,
    reasoning: answer.blocks.get("reasoning")?.text ?? null,
    tool_calls: calls.map(([, { view, text }]) => ({ name: view.title, arguments: text })),
    finish_reason: answer.finishReason,
    seconds: answer.seconds,
    usage: answer.usage,
    decisions: answer.decisions,
    error: notice && `${notice.title} ${notice.text}`.trim(),
  };
}

// The lines that `engine/streams/recording.py` describes. They have what the page got: the text that guards
// let out, without the tokens' ids.
export function recordingOf(messages, { answer, lane }) {
  const { model, temperature, max_tokens: most, hooks } = lane.fields;
  const sampling = { temperature, ...(most && { max_tokens: most }) };
  const request = { request_id: answer.requestId ?? "chatcmpl-page", model, endpoint: "chat", messages, sampling, given: Object.keys(sampling), stream: true, ...(hooks && { hooks }) };
  const calls = new Map();
  const lines = answer.records.map((record) => lineOf(record, answer, calls)).filter(Boolean);
  return [{ version: 1, request }, ...lines].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function lineOf({ kind, at, channel, text, title, call }, { usage }, calls) {
  const t = Number(at.toFixed(6));
  if (kind === "finish") {
    const used = usage && { usage: { prompt_tokens: usage.prompt_tokens, completion_tokens: usage.completion_tokens } };
    return { t, finish_reason: text, ...used };
  }
  if (kind !== "text") return null;
  if (!channel.startsWith("tool_call")) return { t, text, ...(channel !== "content" && { channel }) };
  const index = Number(channel.split(" ")[1]);
  if (!calls.has(index)) calls.set(index, { index, name: title ?? "", ...(call && { id: call }) });
  return { t, text, channel: "tool_call", tool_call: calls.get(index) };
}
