// The policies: what they are, what another point between cost and time would mean for this server's own jobs, and their history.

import { get, patch, post } from "./api.js";
import { amount, empty, exact, h, many, money, put, said, span, table, when } from "./dom.js";
import { attempt, dialog, field, may, panel, problem, refresh } from "./parts.js";

export function policyPage(place) {
  return h("div", {}, h("h1", {}, "Policy"));
}
void [get, patch, post, amount, empty, exact, many, money, put, said, span, table, when, attempt, dialog, field, may, panel, problem, refresh];
