"""The custom resources of the Prometheus operator, as strict models of the fields in the manifests.

No package has their schemas, so these follow the API documentation.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A part of a custom resource with the used fields only."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    """The identity of a resource."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] = {}


class Selector(Strict):
    """The scraped services."""

    match_labels: dict[str, str] = Field(alias="matchLabels")


class Endpoint(Strict):
    """A scraped port."""

    port: str
    path: str
    interval: str = Field(pattern=r"^\d+s$")


class ServiceMonitorSpec(Strict):
    """Services and their ports."""

    selector: Selector
    endpoints: list[Endpoint] = Field(min_length=1)


class ServiceMonitor(Strict):
    """Services that the operator's Prometheus scrapes."""

    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: ServiceMonitorSpec


class Rule(Strict):
    """An alert."""

    alert: str
    expr: str
    for_: str = Field(alias="for", pattern=r"^\d+[sm]$")
    labels: dict[str, str]
    annotations: dict[str, str]


class RuleGroup(Strict):
    """Alerts that are evaluated together."""

    name: str
    rules: list[Rule]


class PrometheusRuleSpec(Strict):
    """The content of `rule_files` of Prometheus."""

    groups: list[RuleGroup]


class PrometheusRule(Strict):
    """Alerts of the operator's Prometheus."""

    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: PrometheusRuleSpec


OPERATOR_KINDS: dict[str, type[Strict]] = {"ServiceMonitor": ServiceMonitor, "PrometheusRule": PrometheusRule}


def validate_operator_resource(manifest: dict[str, Any]) -> None:
    """Raises an error unless the manifest is one of these resources without other fields.

    Raises:
        ValidationError: with the name of the field.
    """
    OPERATOR_KINDS[manifest["kind"]].model_validate(manifest)
