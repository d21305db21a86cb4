"""The base of every shape that is logged or sent."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """Frozen, camelCase outside, snake_case inside; unknown fields are ignored.

    `defer_build` keeps start-up short: a model's schema is built at its first use.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        defer_build=True,
        use_attribute_docstrings=False,
    )

    def dump(self) -> dict[str, Any]:
        """Return the JSON object as it goes over the wire: camelCase, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def parse(cls, data: object) -> Self:
        """Validate a JSON object; raises `pydantic.ValidationError` with the field's path."""
        return cls.model_validate(data)
