"""The OpenAPI document, made from the types that bodies are read into: it cannot say other than what is accepted."""

from typing import Any

import msgspec

from reforward import __version__
from reforward.serve.protocol import ChatRequest, CompletionRequest

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
REFUSALS = {
    "400": "something in the request cannot be used", "401": "the API key is missing or wrong", "404": "no such model",
    "408": "the body did not come in time", "413": "the body is too large", "429": "no room; see Retry-After",
    "500": "the answer could not be ended", "503": "starting or draining",
}  # fmt: skip


def document(model: str) -> dict[str, Any]:
    """OpenAPI 3.1 of what clients may call on a server of `model`."""
    bodies, schemas = msgspec.json.schema_components(
        [ChatRequest, CompletionRequest], ref_template="#/components/schemas/{name}"
    )
    for kind in ("ChatRequest", "CompletionRequest"):
        schemas[kind]["properties"]["model"]["enum"] = [model]
    return {
        "openapi": "3.1.0",
        "info": {"title": "reforward", "version": __version__},
        "paths": {
            "/v1/chat/completions": {"post": _posted(bodies[0])},
            "/v1/completions": {"post": _posted(bodies[1])},
            "/v1/models": {"get": {"responses": _responses({"application/json": {}}, ("401", "503"))}},
            "/health": {"get": {"responses": {code: {"description": code} for code in ("200", "503")}}},
            "/metrics": {"get": {"responses": {"200": {"description": "Prometheus' text format"}}}},
        },
        "components": {"schemas": schemas | {"Error": ERROR}},
    }


def _posted(body: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"application/json": {}, "text/event-stream": {}}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses(told, tuple(REFUSALS)),
    }


def _responses(told: dict[str, Any], refusals: tuple[str, ...]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"200": {"description": "the answer", "content": told}} | {
        code: {"description": REFUSALS[code], "content": error} for code in refusals
    }
