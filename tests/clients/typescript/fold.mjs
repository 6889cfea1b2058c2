// Asks for streams, and lets the SDKs' helpers make whole answers of them.
// Input: [{api, url, body}]. Output: [{answer}], or {error} in place of the answer of a helper that fails.

import { APIS, readInput } from "./sdks.mjs";

async function fold({ api, url, body }) {
  const { resource, final } = APIS[api];
  try {
    return { answer: await final(resource(url).stream(body)) };
  } catch (error) {
    return { error: `${error}` };
  }
}

console.log(JSON.stringify(await Promise.all((await readInput()).map(fold))));
