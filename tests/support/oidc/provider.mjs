// A real provider of OpenID Connect on loopback. Each line on standard input is its whole configuration as JSON: `jwks`
// (private keys), `clients`, `people` (claims by login) and `claimsInIdToken`. A new line replaces the one before, for
// example to rotate the keys. Grants and sessions stay. It answers each line with a line: its issuer.

import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import Provider from 'oidc-provider';

console.info = console.error; // standard output is for the answers
console.log = console.error;
console.warn = console.error;

let handle = (request, answer) => answer.writeHead(503).end();
const server = createServer((request, answer) => handle(request, answer));

function provider(issuer, config) {
  const made = new Provider(issuer, {
    jwks: config.jwks,
    clients: config.clients,
    claims: {
      openid: ['sub'],
      profile: ['preferred_username', 'name'],
      email: ['email', 'email_verified'],
      groups: ['groups'],
    },
    scopes: ['openid', 'profile', 'email', 'groups'],
    conformIdTokenClaims: !config.claimsInIdToken,
    cookies: { keys: ['only for tests'] },
    features: { devInteractions: { enabled: true }, deviceFlow: { enabled: true } },
    findAccount: (context, id) => config.people[id] && {
      accountId: id,
      claims: () => ({ sub: id, ...config.people[id] }),
    },
    // Nobody is asked to consent: what a client asks for is granted.
    loadExistingGrant: async (context) => {
      const { client, session, provider: here } = context.oidc;
      const grant = new here.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid profile email groups');
      await grant.save();
      return grant;
    },
    pkce: { required: () => true },
    ttl: { DeviceCode: 60 },
  });
  return made.callback();
}

server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  createInterface({ input: process.stdin })
    .on('line', (line) => {
      handle = provider(issuer, JSON.parse(line));
      process.stdout.write(`${issuer}\n`);
    })
    .on('close', () => process.exit(0));
});
