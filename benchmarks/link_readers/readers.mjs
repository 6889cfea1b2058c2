// What programs fetch or link from a text. A line of the input is a JSON array of texts; the answer's line has for
// each text the addresses, as [reader, scheme, host, address, as written].
import { createInterface } from "node:readline";
import { HtmlRenderer, Parser } from "commonmark";
import { ident, parse as parseStyle, walk } from "css-tree";
import MarkdownIt from "markdown-it";
import { Marked } from "marked";
import { micromark } from "micromark";
import { gfm, gfmHtml } from "micromark-extension-gfm";
import { parse as parsePage } from "parse5";

// A page of either scheme: `http:host` is relative to a page of the same scheme.
const BASES = ["https://ok.example/a/b", "http://ok.example/a/b"];
const ADDRESS = new Set([
  "action", "archive", "background", "cite", "classid", "code", "codebase", "data", "dynsrc", "formaction", "href",
  "icon", "itemid", "itemtype", "longdesc", "lowsrc", "manifest", "poster", "profile", "src", "usemap", "xlink:href",
]);
const LISTS = new Set(["archive", "attributionsrc", "ping"]);
const IMAGES = new Set(["imagesrcset", "srcset"]);
const ANIMATED = new Set(["by", "from", "to", "values"]);
const OF_STRINGS = /^(?:-\w+-)?(?:image-set|image|cross-fade|src)$/i;

const markdownIt = new MarkdownIt({ html: true, linkify: true });
markdownIt.validateLink = () => true;
// A name alone, as README.md, is no address for the guard.
const { normalize } = markdownIt.linkify;
markdownIt.linkify.normalize = function (match) {
  const isName = /^(?:\/\/)?[^/?#:]+$/.test(match.url);
  normalize.call(this, match);
  if (isName) match.url = "#";
};
const marked = new Marked({ silent: true });
const pedantic = new Marked({ silent: true, pedantic: true, gfm: false });
const commonmark = { parser: new Parser(), html: new HtmlRenderer({ safe: false }) };
const options = {
  allowDangerousHtml: true, allowDangerousProtocol: true, extensions: [gfm()],
  htmlExtensions: [gfmHtml({ tagfilter: undefined })],
};
const READERS = {
  html: (text) => text,
  marked: (text) => marked.parse(text),
  pedantic: (text) => pedantic.parse(text),
  "markdown-it": (text) => markdownIt.render(text),
  micromark: (text) => micromark(text, options),
  commonmark: (text) => commonmark.html.render(commonmark.parser.parse(text)),
};

// Nothing of another scheme is fetched for a style.
const OF_OTHER_SCHEME = /^[^\w/\\]*(?!https?:|ftp:|wss?:|data:)[a-z][\w+.-]*:/i;
const NAME = /((?:\\[0-9a-f]{1,6}[\t\n\f\r ]?|\\[^0-9a-f\n]|[\w-])+)\(/gi;

function* ofStyle(text, context) {
  // css-tree does not read `url` with escapes as CSS Syntax does.
  const plain = text.replace(NAME, (all, name) => (ident.decode(name).toLowerCase() === "url" ? "url(" : all));
  let tree;
  try {
    tree = parseStyle(plain, { context, parseCustomProperty: true, onParseError() {} });
  } catch {
    return;
  }
  const found = [];
  walk(tree, {
    enter(node) {
      if (node.type === "Url") found.push(node.value);
      if (node.type === "Function" && OF_STRINGS.test(ident.decode(node.name)))
        walk(node, (inner) => inner.type === "String" && found.push(inner.value));
      if (node.type === "Atrule" && ident.decode(node.name).toLowerCase() === "import" && node.prelude)
        walk(node.prelude, (inner) => inner.type === "String" && found.push(inner.value));
      if (node.type === "Raw" && node.value !== plain) found.push(...ofStyle(node.value, "value"));
    },
  });
  yield* found.filter((one) => !OF_OTHER_SCHEME.test(one.replace(/[\t\n\r]/g, "")));
}

function refreshed(value) {
  const found = /^[\t\n\f\r ]*[\d.]+[\t\n\f\r ]*(?:[;,][\t\n\f\r ]*|(?<=[\t\n\f\r ]))([\s\S]*)$/.exec(value);
  if (!found) return [];
  const rest = found[1].replace(/^url[\t\n\f\r ]*=[\t\n\f\r ]*/i, "");
  const quoted = /^(["'])([\s\S]*)$/.exec(rest);
  return rest ? [quoted ? quoted[2].split(quoted[1])[0] : rest] : [];
}

// The candidates of HTML's "parse a srcset attribute".
function* images(value) {
  let rest = value;
  while ((rest = rest.replace(/^[\t\n\f\r ,]+/, ""))) {
    const one = /^[^\t\n\f\r ]+/.exec(rest)[0];
    rest = rest.slice(one.length);
    yield one.replace(/,+$/, "");
    if (!one.endsWith(",")) rest = rest.replace(/^(?:[^,(]|\([^)]*\)?)*/, "");
  }
}

function* ofElement(node) {
  const attributes = Object.fromEntries(
    node.attrs.map(({ name, prefix, value }) => [(prefix ? `${prefix}:${name}` : name).toLowerCase(), value]),
  );
  for (const [name, value] of Object.entries(attributes)) {
    if (ADDRESS.has(name)) yield value;
    if (LISTS.has(name)) yield* value.split(/[\t\n\f\r ]+/).filter(Boolean);
    if (IMAGES.has(name)) yield* images(value);
    if (name === "style") yield* ofStyle(value, "declarationList");
    else if (/\(|\\/.test(value)) yield* ofStyle(value, "value"); // as SVG's fill
    if (ANIMATED.has(name) && /^(?:animate|set)/i.test(node.tagName) && /href/i.test(attributes.attributename ?? "")) yield* value.split(";");
  }
  if (node.tagName === "meta" && /^refresh$/i.test(attributes["http-equiv"] ?? ""))
    yield* refreshed(attributes.content ?? "");
  if (node.tagName === "iframe" && "srcdoc" in attributes) yield* ofPage(attributes.srcdoc);
}

function* ofPage(html) {
  const nodes = [parsePage(html)];
  while (nodes.length) {
    const node = nodes.pop();
    if (node.attrs) yield* ofElement(node);
    if (node.tagName === "style")
      yield* ofStyle(node.childNodes.map((child) => child.value ?? "").join(""), "stylesheet");
    if (node.content) nodes.push(node.content);
    nodes.push(...(node.childNodes ?? []));
  }
}

function addresses(text) {
  const seen = new Map();
  for (const [reader, render] of Object.entries(READERS)) {
    let html;
    try {
      html = render(text);
    } catch {
      continue; // it shows nothing
    }
    for (const written of ofPage(html)) {
      for (const base of BASES) {
        const url = URL.canParse(written, base) ? new URL(written, base) : null;
        if (url && !seen.has(url.href)) seen.set(url.href, [reader, url.protocol, url.host, url.href, written]);
      }
    }
  }
  return [...seen.values()];
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(JSON.stringify(JSON.parse(line).map(addresses)) + "\n");
