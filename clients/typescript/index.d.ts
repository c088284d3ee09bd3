export * from "./api.js";
export { ControlSocket, FabricError } from "./control-socket.js";
