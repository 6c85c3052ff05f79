// Who is signed in, where else, and how to end that.

import { get, post } from "./api.js";
import { empty, facts, h, heading, many, said, table, when } from "./dom.js";
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
    const end = async (each) => {
      if (await attempt(() => post("/v1/sign-ins/revoke", { id: each.id }), each.current ? null : "That sign-in has ended")) refresh(box);
    };
    return h("section.card", h("header", h("h2", may(me, "admin") ? "Everybody who is signed in" : "Where you are signed in"), h("span.hint.push", many(found.length, "sign-in"))),
      found.length ? table("Sign-ins", [
        ["User", (each) => [h("span.name", said(each.user)), h("span.sub", each.role, each.project ? [", ", said(each.project)] : "")]],
        ["Browser", (each) => [said(each.browser || "not known"), each.current ? [" ", h("span.tag", "this one")] : ""], "wrap"],
        ["How", (each) => ({ token: "a token", link: "a link", oidc: "OpenID Connect" }[each.how] ?? each.how), "less"],
        ["Signed in", (each) => when(each.created_at), "nowrap"],
        ["Used", (each) => when(each.used_at), "nowrap less"],
        ["Ends", (each) => when(each.expires_at), "nowrap less"],
        ["", (each) => h("button.small.danger", { "data-key": `end-${each.id}`, onclick: () => end(each) }, "End"), "num"],
      ], found, { key: (each) => each.id }) : empty("Nobody is signed in with this page", "Programs use tokens: spill token list."));
  }, { every: 30_000, label: "Sign-ins" });
  return h("div.page", h("div.head", h("h1", "Account"), h("div.actions", h("button", { onclick: () => dispatchEvent(new Event("spill-sign-out")) }, "Sign out"))),
    h("section.card", heading("You"), facts([
      ["user", said(me.user)], ["role", `${me.role}: you may ${RIGHTS[me.role] ?? "do what the server allows"}`], ["project", me.project ? said(me.project) : "all"], ["signed in until", when(me.expires_at, "you end it")],
    ])), box);
}
