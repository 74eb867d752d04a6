"""The custom resources of the Prometheus operator, as strict models of the fields that the manifests use.

Their published schemas are in no package, so these say what the API documentation says; `test_deploy_kubernetes` calls
them.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A part of a custom resource: the fields that we use of the operator's API, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    """Who a resource is."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] = {}


class Selector(Strict):
    """Which services are scraped."""

    match_labels: dict[str, str] = Field(alias="matchLabels")


class Endpoint(Strict):
    """What of a service is scraped."""

    port: str
    path: str
    interval: str = Field(pattern=r"^\d+s$")


class ServiceMonitorSpec(Strict):
    """Services and what of them."""

    selector: Selector
    endpoints: list[Endpoint] = Field(min_length=1)


class ServiceMonitor(Strict):
    """Whom the operator's Prometheus scrapes."""

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
    """Alerts that are looked at together."""

    name: str
    rules: list[Rule]


class PrometheusRuleSpec(Strict):
    """What `rule_files` of Prometheus hold."""

    groups: list[RuleGroup]


class PrometheusRule(Strict):
    """The alerts of the operator's Prometheus."""

    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: PrometheusRuleSpec


OPERATOR_KINDS: dict[str, type[Strict]] = {"ServiceMonitor": ServiceMonitor, "PrometheusRule": PrometheusRule}


def validate_operator_resource(manifest: dict[str, Any]) -> None:
    """Raises an error unless the manifest is one of these resources and has no other fields.

    Raises:
        ValidationError: naming the field.
    """
    OPERATOR_KINDS[manifest["kind"]].model_validate(manifest)
