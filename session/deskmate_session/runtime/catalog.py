"""What a session can be made of: agents, models, tools."""

from collections.abc import Iterable

from deskmate_session.config.agents import Agent
from deskmate_session.model import queries as q
from deskmate_session.model.ports import ToolSpec
from deskmate_session.providers.registry import ModelChoice


def view(agents: Iterable[Agent], models: Iterable[ModelChoice], tools: Iterable[ToolSpec]) -> q.Catalog:
    """The catalogue as editors are shown it."""
    return q.Catalog(
        agents=tuple(q.CatalogAgent(name=agent.name, description=agent.description) for agent in agents),
        models=tuple(
            q.CatalogModel(id=choice.id, context_window=choice.info.context_window) for choice in models
        ),
        tools=tuple(
            q.CatalogTool(name=spec.name, description=spec.description.partition("\n")[0]) for spec in tools
        ),
    )
