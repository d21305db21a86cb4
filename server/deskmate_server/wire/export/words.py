"""The words of a shape: attribute docstrings, read from the source, else the name's one meaning."""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from pydantic.alias_generators import to_camel

GLOSSARY: dict[str, str] = {
    "accepted": "It is the one that counts.",
    "additions": "Lines added.",
    "after": "What stands afterwards; absent: nothing does. Of a page: only what comes after this position.",
    "after_seq": "Only what comes after this position.",
    "agent": "The agent's name.",
    "agents": "The agents to choose from.",
    "always": "What answering *session* or *always* would allow from then on.",
    "archived": "Put away; not listed unless asked for.",
    "archived_at": "When it was put away.",
    "ask": "The open question.",
    "ask_id": "The ask.",
    "asks": "The open asks.",
    "at": "Milliseconds since the epoch.",
    "attempt": "Which retry this is, from 1.",
    "before": "What stood before; absent: nothing did. Of a page: only what comes before this position.",
    "binary": "The content is no text; there is no patch.",
    "by": "Who did it.",
    "call_id": "The call.",
    "calls": "The calls that the answer asked for, in order.",
    "cause": "Id of the event that led to it.",
    "change": "What became of the file.",
    "changed": "The session changed it.",
    "character": "Offset in the line, in the negotiated encoding.",
    "client_answer": "The editor's own words, where one was asked.",
    "command": "The command line.",
    "commands": "Recent commands, or the names of those on offer.",
    "completed_at": "When it was complete.",
    "context_window": "The model's window in tokens; absent when unknown.",
    "created_at": "When it began.",
    "cursor": "`nextCursor` of the page before.",
    "data": "The payload as it was written.",
    "debug_tag": "Where in the code it was made; outside the hash.",
    "deleted": "It was deleted.",
    "deletions": "Lines removed.",
    "delivery": "What happens when the session is busy.",
    "description": "One sentence for the reader.",
    "detail": "What exactly is meant.",
    "diff": "Unified diff.",
    "end": "Where it ends, exclusive.",
    "ended_at": "When it ended.",
    "error": "What went wrong.",
    "error_kind": "The kind of failure.",
    "events": "The events, in order of `seq`; or how many there are.",
    "evidence": "Commands of the turn that show something about the work.",
    "exit_code": "The command's exit code; absent when it has none.",
    "field": "The field that grows.",
    "files": "The files, by URI.",
    "finish": "Why it ended.",
    "folder": "File URI of the workspace folder.",
    "from_event_id": "In place of `fromSeq`: replay after this event.",
    "from_seq": "Where to begin.",
    "has_more": "There are further ones in the direction that was read.",
    "hash": "SHA-256, hex.",
    "held": "Nothing waiting runs until a new prompt or a resume.",
    "hint": "What the person can do next.",
    "id": "Identity only; order is `seq`.",
    "index": "Position in the session, from 0, without a gap.",
    "input": "The arguments.",
    "instructions": "Instruction files in force.",
    "interrupted": "It was stopped from outside.",
    "kind": "Which shape this is.",
    "label": "What to show in its place.",
    "left": "What could not be ended in time.",
    "left_out": "What was left out, and why.",
    "limit": "At most so many.",
    "line": "Line, from 0.",
    "mcp": "MCP servers.",
    "message": "The words for it.",
    "message_id": "The message.",
    "messages": "The messages.",
    "metadata": "For the debugger; no promise about its shape.",
    "mime": "Media type.",
    "mode": "How far the agent may go by itself.",
    "model": "`provider/model`.",
    "models": "The models to choose from.",
    "name": "Its name.",
    "next_at": "When the next attempt is made.",
    "next_cursor": "Pass it as `cursor` for more; absent at the end.",
    "next_seq": "Pass it as `afterSeq` for more; absent at the end.",
    "ok": "Nothing was found.",
    "old_uri": "Where a renamed file was before.",
    "outcome_unknown": "It was cut after it may have acted.",
    "output": "What it gave.",
    "output_file": "Where the full output lies.",
    "parent_id": "What it belongs to.",
    "part": "The part, whole.",
    "part_id": "The part.",
    "partial_result_token": "Updates come as `$/progress` under it.",
    "parts": "The parts, in order.",
    "patch": "Unified diff.",
    "pattern": "What it is matched against.",
    "patterns": "What the rules are matched against.",
    "payload": "The fact itself; its shape is the type's.",
    "permission": "The permission's name.",
    "policy": "Which merge policy chose its content.",
    "prev": "The session's previous hash; 64 zeros at first.",
    "problems": "What was found.",
    "prompts": "The prompts that wait, in order.",
    "query": "Only those that hold this text.",
    "queue": "The prompts that wait.",
    "queued": "It waits for its turn.",
    "range": "The place in the file; absent: all of it.",
    "reads": "Files that it read, as they stood.",
    "reason": "Why.",
    "rejected_by": "Who said no.",
    "removed": "It was still waiting.",
    "reply": "The answer.",
    "role": "Who speaks.",
    "saved": "The file on disk holds it.",
    "seq": "Position in the folder's log; the only order there is.",
    "session": "The session, whole.",
    "session_id": "The session.",
    "sessions": "The sessions.",
    "skills": "The names of the skills.",
    "start": "Where it begins, inclusive.",
    "started_at": "When it began to run.",
    "state": "Where it stands.",
    "status": "Where it stands.",
    "step": "The request's number in its turn, from 1.",
    "steps": "Model requests of the turn.",
    "success": "It did what was asked.",
    "summary": "One line for a person.",
    "tag": "The type's tag as it was written.",
    "tail": "The last lines of the output.",
    "text": "The text.",
    "timed_out": "It ran longer than its limit.",
    "title": "One line for a person.",
    "to_seq": "Where to end.",
    "todos": "What is still to do.",
    "token": "The subscription's `partialResultToken`.",
    "tool": "The tool's name.",
    "tool_results": "Results of calls.",
    "tools": "The tools that the model is offered.",
    "transforms": "What plugins did to it, in order.",
    "truncated": "The output was shortened.",
    "turn_id": "The turn.",
    "type": "Which shape this is.",
    "types": "Only events of these types.",
    "updated_at": "When something last happened in it.",
    "uri": "The file, in the client's own spelling where one is open.",
    "usage": "Tokens used.",
    "variant": "The model's variant, where it has several.",
    "variants": "The variants to choose from.",
    "verified": "It was seen to hold.",
    "version": "Version of this shape.",
    "via": "The way the change took.",
    "voided": "Part of an attempt that failed; never sent to the model again.",
    "what": "What it is about.",
    "why": "The reason.",
    "work_context": "The exact state of the work.",
    "work_context_files": "URIs of the files that it tells of.",
    "work_done_token": "Work-done progress comes under it.",
    "workdir": "The folder it runs in.",
}
"""Names that mean the same wherever they stand, so that no shape has to say it again."""


def class_words(cls: type) -> str:
    """The class's docstring as one paragraph."""
    return _flat(inspect.getdoc(cls) or "")


def field_words(cls: type, field: str) -> str:
    """What a field means: its own docstring in the class or a base, else the glossary's, else nothing."""
    for base in cls.__mro__:
        if own := _documented(base.__module__).get((base.__qualname__, field)):
            return own
    return GLOSSARY.get(field, "")


def field_is_documented(cls: type, field: str) -> bool:
    """A field says what it means, or its name does."""
    return bool(field_words(cls, field))


def alias_words(module: str, name: str) -> str:
    """The docstring after a module's `Name = …`."""
    return _documented(module).get(("", name), "")


def wire_name(field: str) -> str:
    """The name that goes over the wire."""
    return to_camel(field)


@cache
def _documented(module: str) -> dict[tuple[str, str], str]:
    """(class or nothing, name) → docstring, for every assignment of a module that has one behind it."""
    loaded = sys.modules.get(module)
    if loaded is None or not module.startswith("deskmate_"):
        return {}
    tree = ast.parse(inspect.getsource(loaded))
    found = dict(_in_body("", tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.update(_in_body(node.name, node.body))
    return found


def _in_body(owner: str, body: list[ast.stmt]) -> list[tuple[tuple[str, str], str]]:
    found: list[tuple[tuple[str, str], str]] = []
    for node, after in pairwise(body):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found.append(((owner, name), _flat(text)))
            case _:
                pass
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())
