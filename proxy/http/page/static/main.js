// The page: its views, keys and theme.

import { keyFaults } from "./api.js";
import { Chat } from "./chat.js";
import { Decisions } from "./decisions.js";
import { byId } from "./dom.js";
import { initPopover } from "./popover.js";
import { Live } from "./live.js";
import { applyTheme, keys, nextTheme, theme } from "./session.js";
import { Setup } from "./setup.js";
import { Shadow } from "./shadow.js";

const OPERATORS = "live";  // the first view of a port that has no models to chat with
const VIEWS = { chat: null, live: new Live({ openKeys }), decisions: new Decisions({ openKeys }), shadow: new Shadow({ openKeys }) };

let shown = null;

function showView() {
  const first = setup.hasModels ? "chat" : OPERATORS;
  const [asked, query = ""] = location.hash.slice(1).split("?");
  const name = Object.hasOwn(VIEWS, asked) && (asked !== "chat" || setup.hasModels) ? asked : first;
  if (`${name}?${query}` === shown) return;
  shown = `${name}?${query}`;
  for (const one of Object.keys(VIEWS)) {
    byId(`view-${one}`).hidden = one !== name;
    const link = document.querySelector(`nav a[href="#${one}"]`);
    if (one === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (one === name) VIEWS[one]?.start(new URLSearchParams(query));
    else VIEWS[one]?.stop();
  }
  document.title = `${document.querySelector(`nav a[href="#${name}"]`).textContent} – Weir`;
}

// Who has come to chat types at once. On a phone, a keyboard would cover the page.
function focusMessage() {
  if (!byId("view-chat").hidden && matchMedia("(pointer: fine)").matches) byId("message").focus({ preventScroll: true });
}

function initTheme() {
  const button = byId("theme");
  const name = () => { button.setAttribute("aria-label", `Colours: ${{ auto: "as the system has them", light: "light", dark: "dark" }[theme()]}`); };
  button.addEventListener("click", () => { nextTheme(); name(); });
  name();
}

function openKeys() {
  for (const name of ["client", "admin"]) showFault(name);
  byId("client-key").value = keys.client;
  byId("admin-key").value = keys.admin;
  byId("keys").showModal();
}

function showFault(name, fault) {
  const box = byId(`${name}-key`);
  byId(`${name}-key-fault`).textContent = fault ?? "";
  if (!fault) {
    box.removeAttribute("aria-invalid");
    return;
  }
  box.setAttribute("aria-invalid", "true");
  box.focus();
}

function initKeys() {
  for (const id of ["open-keys", "role-keys"]) byId(id).addEventListener("click", openKeys);
  byId("keys-cancel").addEventListener("click", () => byId("keys").close());
  byId("keys-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = { client: byId("client-key").value.trim(), admin: byId("admin-key").value.trim() };
    const faults = await keyFaults(given);
    for (const name of ["client", "admin"]) showFault(name, faults[name]);
    if (faults.client || faults.admin) return;
    keys.set(given);
    byId("keys").close();
  });
}

applyTheme();
initTheme();
initKeys();
initPopover();
const setup = new Setup({ openKeys });
new Chat(setup, { openKeys });
keys.onChange(() => {
  setup.load();
  for (const view of Object.values(VIEWS)) view?.stop();
  shown = null;
  showView();
});
setup.onChange(() => {
  document.querySelector('nav a[href="#chat"]').hidden = !setup.hasModels;
  document.querySelector(".skip").hidden = !setup.hasModels;
  showView();
});
addEventListener("hashchange", showView);
showView();
focusMessage();
setup.load();
