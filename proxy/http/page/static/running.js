// The requests that run, and a button that cancels one. A row stays in its place, so that the focus does, too.

import { explain, getJson, send } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { keys } from "./session.js";
import { plural, seconds } from "./words.js";

const MOST = 50;

export class RunningRequests {
  constructor() {
    this.box = byId("running");
    this.isLoading = false;
    this.note = h("p", { class: "hint", role: "status" });
    this.count = h("p", { class: "hint" });
    this.body = h("tbody");
    this.table = h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Requests that run" },
      h("table", {},
        h("thead", {}, h("tr", {}, ["Request", "Key", "Model", "Policy", "Endpoint", "For", ""].map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))))),
        this.body));
    this.section = h("section", { class: "board" }, h("h2", {}, "Requests that run"), this.count, this.table, this.note);
  }

  async load(signal) {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const { data, num_running: total } = await getJson(`admin/requests?limit=${MOST}`, { signal });
      if (!signal.aborted) this.#draw(data, total);
    } catch (error) {
      if (!signal.aborted) this.note.textContent = explain(error).text;
    } finally {
      this.isLoading = false;
    }
  }

  clear() {
    replace(this.box);
    replace(this.body);
    this.note.textContent = "";
  }

  #draw(shown, total) {
    if (!this.section.isConnected) this.box.append(this.section);
    const before = new Map([...this.body.rows].map((row) => [row.dataset.id, row]));
    this.count.textContent = shown.length < total ? `${plural(total, "request")}; the ${shown.length} oldest are shown` : plural(total, "request");
    for (const request of shown) {
      const row = before.get(request.id) ?? this.body.appendChild(this.#rowOf(request));
      row.querySelector(".for").textContent = seconds(request.seconds);
      before.delete(request.id);
    }
    for (const row of before.values()) row.remove();
    this.table.hidden = !shown.length;
  }

  #rowOf({ id, key, tenant, model, policy, endpoint, stream }) {
    const cancel = h("button", { type: "button", class: "quiet", "aria-label": `Cancel ${id}`, onclick: () => this.#cancel(id, cancel) }, "Cancel");
    const cells = [tenant === "default" ? key : `${key} (${tenant})`, model, policy, stream ? `${endpoint}, streamed` : endpoint];
    return h("tr", { dataset: { id } }, h("th", { scope: "row", dir: "auto" }, id), cells.map((cell) => h("td", {}, cell)),
      h("td", { class: "for" }), h("td", {}, keys.admin ? cancel : null));
  }

  async #cancel(id, button) {
    button.disabled = true;
    try {
      await send(`admin/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
      this.note.textContent = `${id} is cancelled.`;
    } catch (error) {
      button.disabled = false;
      this.note.textContent = explain(error).text;
    }
  }
}
