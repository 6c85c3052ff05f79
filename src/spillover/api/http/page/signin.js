// Signs somebody in: with a one-time code from a link, with a token, or at the provider of OpenID Connect.

import { get, post } from "./api.js";
import { h, put } from "./dom.js";
import { field, problem } from "./parts.js";

/** @param {AbortSignal} signal @param {() => void} signedIn */
export function signInPage(signal, signedIn) {
  const code = location.hash.slice(1);
  // The code works once. It leaves the address at once, so that it stays in no history.
  if (code) history.replaceState(null, "", location.pathname);

  const said = h("div", { "aria-live": "assertive" });
  const token = h("input", { type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true });
  const button = h("button.primary", { type: "submit" }, "Sign in");
  const others = h("div");

  async function prove(proof) {
    button.disabled = true;
    put(said, h("p.busy", "Signing in …"));
    try {
      await post("/v1/sign-in", proof);
      signedIn();
    } catch (error) {
      if (signal.aborted) return;
      put(said, problem(error), "code" in proof ? h("p.hint", "A link signs in once, within a minute. Make another one with ", h("code", "spill open"), ".") : null);
    } finally {
      button.disabled = false;
    }
  }
  if (code) prove({ code });
  get("/v1/sign-in/methods", {}, signal).then((methods) => {
    if (methods.oidc) put(others, h("a.button.primary", { href: methods.oidc.start, style: { width: "100%" } }, `Sign in with ${methods.oidc.name}`), h("p.hint", "Or with a token:"));
  }, (error) => signal.aborted || put(said, problem(error)));

  return h("div.door", h("main.card", {},
    h("div.brand", h("img", { src: "/assets/icon.svg", alt: "" }), "Spillover"),
    h("form.stack", { onsubmit: (event) => { event.preventDefault(); prove({ token: token.value.trim() }); } },
      h("h1", "Sign in"), said, others,
      field("Token", token),
      button,
      h("p.hint", "On the machine of the server, ", h("code", "spill open"), " opens this page and signs you in. Elsewhere, ask an administrator for a token: ", h("code", "spill token create"), "."))));
}
