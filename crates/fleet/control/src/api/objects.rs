//! The paths by which switches and ports are added and removed.

use super::routes::unread;
use super::{ErrorBody, FabricView, PortView, SwitchView};
use crate::engine::{EngineRequest, Failure, Inbox, ObjectOrder};
use crate::file::{policy_keys, port_keys, switch_keys};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{OpenApi, PartialSchema, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(switches, add_switch, remove_switch, add_port, set_port, remove_port))]
struct Description;

/// The description of these paths.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// These paths.
pub fn routes() -> Router<Inbox> {
    Router::new()
        .route("/v1/switches", get(switches).post(add_switch))
        .route("/v1/switches/{name}", delete(remove_switch))
        .route("/v1/ports", post(add_port))
        .route("/v1/ports/{name}", delete(remove_port).patch(set_port))
}

/// A switch to add: its name, and the keys of `[switch.NAME]`; null is as if the key were not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewSwitch(pub Map<String, Value>);

/// A port to add: its name, and the keys of `[port.NAME]`; null is as if the key were not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewPort(pub Map<String, Value>);

/// The schema of an object with these keys; those of `texts` are strings.
fn schema(description: &str, required: &[&str], keys: (Vec<&str>, Vec<&str>)) -> RefOr<Schema> {
    let (all, texts) = keys;
    let mut properties = json!({ "name": { "type": "string", "description": "Its name." } });
    let text = json!({ "type": "string" });
    let other = json!({ "type": ["string", "integer", "boolean", "array", "object"], "items": &text });
    for key in all {
        properties[key] = if texts.contains(&key) { text.clone() } else { other.clone() };
    }
    let schema = json!({
        "type": "object", "description": description, "required": required, "properties": properties,
    });
    serde_json::from_value(schema).unwrap_or_default()
}

impl PartialSchema for NewSwitch {
    fn schema() -> RefOr<Schema> {
        let description = "A switch to add: its name, and the keys of `[switch.NAME]`.";
        schema(description, &["name"], switch_keys())
    }
}

impl ToSchema for NewSwitch {}

/// New values of keys of a port that can change while it runs; null for the default. Other keys stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortChange(pub Map<String, Value>);

impl PartialSchema for PortChange {
    fn schema() -> RefOr<Schema> {
        let description = "New values of keys of a port; null for the default. Other keys stay.";
        let items = json!({ "type": ["string", "integer"] });
        let value = json!({ "type": ["string", "integer", "boolean", "array", "null"], "items": items });
        let properties: Map<String, Value> =
            policy_keys().into_iter().map(|key| (key.into(), value.clone())).collect();
        let schema = json!({ "type": "object", "description": description, "properties": properties });
        serde_json::from_value(schema).unwrap_or_default()
    }
}

impl ToSchema for PortChange {}

impl PartialSchema for NewPort {
    fn schema() -> RefOr<Schema> {
        let description = "A port to add: its name, and the keys of `[port.NAME]`, which depend on its kind.";
        schema(description, &["name", "kind"], port_keys(None, &[]))
    }
}

impl ToSchema for NewPort {}

async fn order(inbox: &Inbox, order: ObjectOrder, done: StatusCode) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::ChangeObjects(order, answer)).await.map(|()| done)
}

/// Every switch.
#[utoipa::path(get, path = "/v1/switches",
    security(("token" = ["read"])), responses((status = 200, body = Vec<SwitchView>)))]
async fn switches(State(inbox): State<Inbox>) -> Result<Json<Vec<SwitchView>>, Failure> {
    let FabricView { switches, .. } = inbox.ask(EngineRequest::Fabric).await?;
    Ok(Json(switches))
}

/// Adds a switch. A wrong request changes nothing.
#[utoipa::path(post, path = "/v1/switches",
    security(("token" = ["admin"])), request_body = NewSwitch, responses(
    (status = 201, description = "It is there"),
    (status = 409, body = ErrorBody),
    (status = 422, body = ErrorBody, description = "The request is wrong")))]
async fn add_switch(
    State(inbox): State<Inbox>,
    new: Result<Json<NewSwitch>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(NewSwitch(keys)) = new.map_err(unread)?;
    order(&inbox, ObjectOrder::AddSwitch(keys), StatusCode::CREATED).await
}

/// Removes a switch that has no ports.
#[utoipa::path(delete, path = "/v1/switches/{name}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The switch")),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It has ports")))]
async fn remove_switch(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    order(&inbox, ObjectOrder::RemoveSwitch(name), StatusCode::NO_CONTENT).await
}

/// Adds a port. A wrong request changes nothing.
#[utoipa::path(post, path = "/v1/ports",
    security(("token" = ["admin"])), request_body = NewPort, responses(
    (status = 201, description = "Its peer can connect"),
    (status = 409, body = ErrorBody, description = "This host refuses it"),
    (status = 422, body = ErrorBody, description = "The request is wrong")))]
async fn add_port(
    State(inbox): State<Inbox>,
    new: Result<Json<NewPort>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(NewPort(keys)) = new.map_err(unread)?;
    order(&inbox, ObjectOrder::AddPort(keys), StatusCode::CREATED).await
}

/// Changes what a switch lets a port send and receive, while frames pass. A wrong request changes nothing.
#[utoipa::path(patch, path = "/v1/ports/{name}",
    security(("token" = ["operate"])), request_body = PortChange,
    params(("name" = String, Path, description = "The port")),
    responses((status = 200, body = PortView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody, description = "The request is wrong")))]
async fn set_port(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    change: Result<Json<PortChange>, JsonRejection>,
) -> Result<Json<PortView>, Failure> {
    let Json(PortChange(keys)) = change.map_err(unread)?;
    order(&inbox, ObjectOrder::SetPort(name.clone(), keys), StatusCode::OK).await?;
    let ports = inbox.ask(EngineRequest::Ports).await?;
    let gone = || Failure::conflict(format!("port {name} is gone"));
    ports.into_iter().find(|port| port.name == name).map(Json).ok_or_else(gone)
}

/// Removes a port, and sends its peer away.
#[utoipa::path(delete, path = "/v1/ports/{name}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The port")),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "A guest, a function or another object needs it")))]
async fn remove_port(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    order(&inbox, ObjectOrder::RemovePort(name), StatusCode::NO_CONTENT).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_have_every_key() {
        let properties = |schema: RefOr<Schema>| serde_json::to_value(schema).unwrap()["properties"].clone();
        let (port, switch) = (properties(NewPort::schema()), properties(NewSwitch::schema()));
        for (schema, (all, texts)) in [(&port, port_keys(None, &[])), (&switch, switch_keys())] {
            assert!(schema["name"].is_object(), "{schema}");
            for key in all {
                assert_eq!(schema[key]["type"] == "string", texts.contains(&key), "{key}: {schema}");
            }
        }
        assert_eq!(port["slots"]["items"]["type"], "string");
    }
}
