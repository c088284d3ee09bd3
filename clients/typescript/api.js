// Written by scripts/clients.py from the OpenAPI document (`ringway openapi`).

export class Api {
  #socket;

  constructor(socket) {
    this.#socket = socket;
  }

  healthz() {
    return this.#socket.text("GET", "/healthz", []);
  }

  metrics() {
    return this.#socket.text("GET", "/metrics", []);
  }

  arriveFunction(body) {
    return this.#socket.call("POST", "/v1/arrivals", [], { body });
  }

  audit(query = {}) {
    return this.#socket.json("GET", "/v1/audit", [], { query });
  }

  chains() {
    return this.#socket.json("GET", "/v1/chains", []);
  }

  fabricEvents(query = {}) {
    return this.#socket.json("GET", "/v1/events", [], { query });
  }

  fabric() {
    return this.#socket.json("GET", "/v1/fabric", []);
  }

  putFabric(body) {
    return this.#socket.json("PUT", "/v1/fabric", [], { body });
  }

  savedFabric() {
    return this.#socket.json("GET", "/v1/fabric/file", []);
  }

  functions() {
    return this.#socket.json("GET", "/v1/functions", []);
  }

  createFunction(body) {
    return this.#socket.call("POST", "/v1/functions", [], { body });
  }

  destroyFunction(name) {
    return this.#socket.call("DELETE", "/v1/functions/{}", [name]);
  }

  updateFunction(name, body) {
    return this.#socket.call("PUT", "/v1/functions/{}/configuration", [name], { body });
  }

  departFunction(name) {
    return this.#socket.json("POST", "/v1/functions/{}/depart", [name]);
  }

  functionGraph(name, query = {}) {
    return this.#socket.json("GET", "/v1/functions/{}/graph", [name], { query });
  }

  functionSvg(name, query = {}) {
    return this.#socket.text("GET", "/v1/functions/{}/graph.svg", [name], { query });
  }

  readHandler(name, handler) {
    return this.#socket.json("GET", "/v1/functions/{}/handlers/{}", [name, handler]);
  }

  writeHandler(name, handler, body) {
    return this.#socket.call("PUT", "/v1/functions/{}/handlers/{}", [name, handler], { body });
  }

  resumeFunction(name) {
    return this.#socket.call("POST", "/v1/functions/{}/resume", [name]);
  }

  snapshotFunction(name, body) {
    return this.#socket.call("POST", "/v1/functions/{}/snapshot", [name], { body });
  }

  startFunction(name) {
    return this.#socket.call("POST", "/v1/functions/{}/start", [name]);
  }

  stopFunction(name) {
    return this.#socket.call("POST", "/v1/functions/{}/stop", [name]);
  }

  suspendFunction(name) {
    return this.#socket.call("POST", "/v1/functions/{}/suspend", [name]);
  }

  fabricGraph(query = {}) {
    return this.#socket.json("GET", "/v1/graph", [], { query });
  }

  fabricSvg(query = {}) {
    return this.#socket.text("GET", "/v1/graph.svg", [], { query });
  }

  prepareGuest(body) {
    return this.#socket.json("POST", "/v1/guest-arrivals", [], { body });
  }

  arrivingGuest(name, ticket) {
    return this.#socket.json("GET", "/v1/guest-arrivals/{}/{}", [name, ticket]);
  }

  abandonGuest(name, ticket) {
    return this.#socket.call("DELETE", "/v1/guest-arrivals/{}/{}", [name, ticket]);
  }

  activateGuest(name, ticket, body) {
    return this.#socket.call("POST", "/v1/guest-arrivals/{}/{}/activate", [name, ticket], { body });
  }

  guests() {
    return this.#socket.json("GET", "/v1/guests", []);
  }

  exec(name, body) {
    return this.#socket.json("POST", "/v1/guests/{}/exec", [name], { body });
  }

  migrateGuest(name, body) {
    return this.#socket.json("POST", "/v1/guests/{}/migrate", [name], { body });
  }

  guestMigration(name) {
    return this.#socket.json("GET", "/v1/guests/{}/migration", [name]);
  }

  cancelGuestMigration(name) {
    return this.#socket.call("DELETE", "/v1/guests/{}/migration", [name]);
  }

  resolveGuestMigration(name, body) {
    return this.#socket.json("POST", "/v1/guests/{}/migration/resolve", [name], { body });
  }

  startGuest(name) {
    return this.#socket.call("POST", "/v1/guests/{}/start", [name]);
  }

  stopGuest(name) {
    return this.#socket.call("POST", "/v1/guests/{}/stop", [name]);
  }

  fabricHosts() {
    return this.#socket.json("GET", "/v1/hosts", []);
  }

  links() {
    return this.#socket.json("GET", "/v1/links", []);
  }

  setLink(name, body) {
    return this.#socket.json("PATCH", "/v1/links/{}", [name], { body });
  }

  page() {
    return this.#socket.json("GET", "/v1/page", []);
  }

  decide(body) {
    return this.#socket.json("POST", "/v1/place", [], { body });
  }

  rounds() {
    return this.#socket.json("GET", "/v1/place/balance", []);
  }

  balance(body) {
    return this.#socket.json("POST", "/v1/place/balance", [], { body });
  }

  decisions(query = {}) {
    return this.#socket.json("GET", "/v1/place/decisions", [], { query });
  }

  explain(id) {
    return this.#socket.json("GET", "/v1/place/decisions/{}", [id]);
  }

  events(query = {}) {
    return this.#socket.json("GET", "/v1/place/events", [], { query });
  }

  best(body) {
    return this.#socket.json("POST", "/v1/place/extender/best", [], { body });
  }

  bind(body) {
    return this.#socket.json("POST", "/v1/place/extender/bind", [], { body });
  }

  filter(body) {
    return this.#socket.json("POST", "/v1/place/extender/filter", [], { body });
  }

  prioritize(body) {
    return this.#socket.json("POST", "/v1/place/extender/prioritize", [], { body });
  }

  facts(body) {
    return this.#socket.json("POST", "/v1/place/facts", [], { body });
  }

  removeFact(host, name) {
    return this.#socket.call("DELETE", "/v1/place/facts/{}/{}", [host, name]);
  }

  placeGuest(name) {
    return this.#socket.json("POST", "/v1/place/guests/{}/start", [name]);
  }

  hosts() {
    return this.#socket.json("GET", "/v1/place/hosts", []);
  }

  activate(name) {
    return this.#socket.json("POST", "/v1/place/hosts/{}/activate", [name]);
  }

  drain(name, body) {
    return this.#socket.json("POST", "/v1/place/hosts/{}/drain", [name], { body });
  }

  maintain(name) {
    return this.#socket.json("POST", "/v1/place/hosts/{}/maintenance", [name]);
  }

  listObjects(query = {}) {
    return this.#socket.json("GET", "/v1/place/objects", [], { query });
  }

  objects(body) {
    return this.#socket.json("POST", "/v1/place/objects", [], { body });
  }

  remove(kind, name) {
    return this.#socket.call("DELETE", "/v1/place/objects/{}/{}", [kind, name]);
  }

  attached() {
    return this.#socket.json("GET", "/v1/place/plugins", []);
  }

  plugins(body) {
    return this.#socket.json("PUT", "/v1/place/plugins", [], { body });
  }

  policies() {
    return this.#socket.json("GET", "/v1/place/policies", []);
  }

  policy(name) {
    return this.#socket.json("GET", "/v1/place/policies/{}", [name]);
  }

  store() {
    return this.#socket.json("GET", "/v1/place/store", []);
  }

  backup(body) {
    return this.#socket.json("POST", "/v1/place/store/backup", [], { body });
  }

  join(body) {
    return this.#socket.json("POST", "/v1/place/this-host", [], { body });
  }

  attempt(body) {
    return this.#socket.json("POST", "/v1/place/try", [], { body });
  }

  units() {
    return this.#socket.json("GET", "/v1/place/units", []);
  }

  vms() {
    return this.#socket.json("GET", "/v1/place/vms", []);
  }

  confirm(name) {
    return this.#socket.call("POST", "/v1/place/vms/{}/confirm", [name]);
  }

  release(name) {
    return this.#socket.call("POST", "/v1/place/vms/{}/release", [name]);
  }

  whyNot(body) {
    return this.#socket.json("POST", "/v1/place/why-not", [], { body });
  }

  ports() {
    return this.#socket.json("GET", "/v1/ports", []);
  }

  addPort(body) {
    return this.#socket.call("POST", "/v1/ports", [], { body });
  }

  removePort(name) {
    return this.#socket.call("DELETE", "/v1/ports/{}", [name]);
  }

  setPort(name, body) {
    return this.#socket.json("PATCH", "/v1/ports/{}", [name], { body });
  }

  carrierOff(name) {
    return this.#socket.call("POST", "/v1/ports/{}/down", [name]);
  }

  exits(name) {
    return this.#socket.json("GET", "/v1/ports/{}/exits", [name]);
  }

  traceFrame(name, body) {
    return this.#socket.json("POST", "/v1/ports/{}/trace", [name], { body });
  }

  carrierOn(name) {
    return this.#socket.call("POST", "/v1/ports/{}/up", [name]);
  }

  profile(query = {}) {
    return this.#socket.json("GET", "/v1/profile", [], { query });
  }

  programs() {
    return this.#socket.json("GET", "/v1/programs", []);
  }

  restartProgram(name) {
    return this.#socket.call("POST", "/v1/programs/{}/restart", [name]);
  }

  startProgram(name) {
    return this.#socket.call("POST", "/v1/programs/{}/start", [name]);
  }

  stopProgram(name) {
    return this.#socket.call("POST", "/v1/programs/{}/stop", [name]);
  }

  rates() {
    return this.#socket.text("GET", "/v1/rates", []);
  }

  shutdown() {
    return this.#socket.call("POST", "/v1/shutdown", []);
  }

  snapshots() {
    return this.#socket.json("GET", "/v1/snapshots", []);
  }

  forgetSnapshot(name) {
    return this.#socket.call("DELETE", "/v1/snapshots/{}", [name]);
  }

  cloneSnapshot(name, body) {
    return this.#socket.call("POST", "/v1/snapshots/{}/clone", [name], { body });
  }

  stats() {
    return this.#socket.json("GET", "/v1/stats", []);
  }

  switches() {
    return this.#socket.json("GET", "/v1/switches", []);
  }

  addSwitch(body) {
    return this.#socket.call("POST", "/v1/switches", [], { body });
  }

  removeSwitch(name) {
    return this.#socket.call("DELETE", "/v1/switches/{}", [name]);
  }

  flows(name, query = {}) {
    return this.#socket.json("GET", "/v1/switches/{}/flows", [name], { query });
  }

  replaceFlows(name, body) {
    return this.#socket.json("PUT", "/v1/switches/{}/flows", [name], { body });
  }

  changeFlows(name, body) {
    return this.#socket.json("POST", "/v1/switches/{}/flows", [name], { body });
  }

  groups(name) {
    return this.#socket.json("GET", "/v1/switches/{}/groups", [name]);
  }

  table(name) {
    return this.#socket.json("GET", "/v1/switches/{}/table", [name]);
  }

  tokens() {
    return this.#socket.json("GET", "/v1/tokens", []);
  }

  addToken(body) {
    return this.#socket.json("POST", "/v1/tokens", [], { body });
  }

  removeToken(name) {
    return this.#socket.call("DELETE", "/v1/tokens/{}", [name]);
  }

  usage() {
    return this.#socket.json("GET", "/v1/usage", []);
  }
}
