// Server-sent events, read from a response's body (https://html.spec.whatwg.org/multipage/server-sent-events.html).

const MAX_LINE = 16 * 1024 * 1024;

export class EventDecoder {
  #rest = "";
  #event = "";
  #data = [];

  // The events that `text` completes.
  feed(text) {
    const events = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    if (this.#rest.length > MAX_LINE) throw new Error("A line of the stream is too long.");
    for (const line of lines) {
      if (line === "") this.#complete(events);
      else this.#take(line);
    }
    return events;
  }

  #take(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
  }

  #complete(events) {
    if (this.#data.length) events.push({ name: this.#event || "message", data: this.#data.join("\n") });
    this.#event = "";
    this.#data = [];
  }
}

export async function* eventsOf(response) {
  const reader = response.body.getReader();
  const text = new TextDecoder();
  const decoder = new EventDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* decoder.feed(text.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
