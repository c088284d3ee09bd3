//! The fields of Kubernetes' objects (k8s.io/api/core/v1) that are read; others are ignored.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Go programs write `null` for empty values.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Metadata of every object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub annotations: Annotations,
}

/// The annotations that are read. Attack: annotations of a quarter of a megabyte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Annotations {
    #[serde(rename = "ringway/policy", skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(rename = "ringway/chain", skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pod {
    /// Its name, labels and annotations.
    pub metadata: Metadata,
    /// Its specification.
    pub spec: PodSpec,
    /// Its status.
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub overhead: Quantities,
    /// Requests of the pod as a whole.
    #[serde(deserialize_with = "nullable")]
    pub resources: Requirements,
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub resources: Requirements,
    pub restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirements {
    #[serde(deserialize_with = "nullable")]
    pub requests: Quantities,
}

/// Quantities of the resources that are counted here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantities {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: String,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    /// The values set by the kubelet, if reported.
    pub resources: Option<Requirements>,
    #[serde(deserialize_with = "nullable")]
    pub allocated_resources: Quantities,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Metadata,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    pub capacity: Quantities,
    #[serde(deserialize_with = "nullable")]
    pub allocatable: Quantities,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub struct List<T> {
    #[serde(default)]
    pub metadata: ListMetadata,
    pub items: Option<Vec<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMetadata {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub rest: String,
}

/// A line of a watch, whose type determines its object's type.
#[derive(Debug, Default, Deserialize)]
pub struct WatchEvent<T> {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default = "Option::default")]
    pub object: Option<T>,
}

/// The metadata of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AnyObject {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Metadata,
}

/// An error of the API server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub code: u16,
    pub message: String,
}

/// A kind of objects that is watched.
pub trait Watched: DeserializeOwned + Send + 'static {
    /// Its name in metrics and messages.
    const NAME: &str;
    /// The API server's path of all objects, with `?` and a selector if needed.
    const PATH: &str;
}

impl Watched for Node {
    const NAME: &str = "nodes";
    const PATH: &str = "/api/v1/nodes?";
}

impl Watched for Pod {
    const NAME: &str = "pods";
    /// Selects pods that are bound and have not terminated. Terminated pods count as deleted.
    const PATH: &str =
        "/api/v1/pods?fieldSelector=spec.nodeName!%3D,status.phase!%3DSucceeded,status.phase!%3DFailed&";
}
