// Who is signed in, where else, and how to end that.

import { get, post } from "./api.js";
import { empty, facts, h, heading, many, said, sub, table, when } from "./dom.js";
import { attempt, may, panel, refresh } from "./parts.js";

const RIGHTS = {
  read: "read everything, and change nothing",
  submit: "submit jobs, and change your own",
  maintain: "submit jobs, and change those of others",
  admin: "change everything",
};

/** @param {import("./parts.js").Place} place */
export function accountPage(place) {
  const { me } = place;
  const box = panel(place, (signal) => get("/v1/sign-ins", {}, signal), (found) => {
    const end = async (it) => {
      if (await attempt(() => post("/v1/sign-ins/revoke", { id: it.id }), it.current ? null : "That sign-in has ended")) refresh(box);
    };
    return h("section.card", h("header", h("h2", may(me, "admin") ? "Everybody who is signed in" : "Where you are signed in"), h("span.hint.push", many(found.length, "sign-in"))),
      found.length ? table("Sign-ins", [
        ["User", (it) => [h("span.name", said(it.user)), sub(it.role, it.project ? [", ", said(it.project)] : "")]],
        ["Browser", (it) => [said(it.browser || "not known"), it.current ? [" ", h("span.tag", "this one")] : ""], "wrap"],
        ["How", (it) => ({ token: "a token", link: "a link", oidc: "OpenID Connect" }[it.how] ?? it.how), "less"],
        ["Signed in", (it) => when(it.created_at), "nowrap"],
        ["Used", (it) => when(it.used_at), "nowrap less"],
        ["Ends", (it) => when(it.expires_at), "nowrap less"],
        ["", (it) => h("button.small.danger", { key: `end-${it.id}`, onclick: () => end(it) }, "End"), "num"],
      ], found, { key: (it) => it.id }) : empty("Nobody is signed in with this page", "Programs use tokens: spill token list."));
  }, { every: 30_000, label: "Sign-ins" });
  return h("div.page", h("div.head", h("h1", "Account"), h("div.actions", h("button", { onclick: () => dispatchEvent(new Event("spill-sign-out")) }, "Sign out"))),
    h("section.card", heading("You"), facts([
      ["user", said(me.user)], ["role", `${me.role}: you may ${RIGHTS[me.role] ?? "do what the server allows"}`], ["project", me.project ? said(me.project) : "all"], ["signed in until", when(me.expires_at, "you end it")],
    ])), box);
}
