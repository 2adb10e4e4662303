"""Replies to the demonstration's question about the functions of Python's standard library.

Pure; every figure in the answer is computed from tool results alone. Needs `list_modules` and `analyse_module`, and
uses `index_identifiers` (a long job) and `task_result` where they are on offer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.models.rehearsal.conversation import (
    TASK_RESULT,
    Conversation,
    Round,
    as_json,
    as_json_object,
    asking,
    fetching,
    open_tickets,
)

LIST_MODULES = "list_modules"
ANALYSE_MODULE = "analyse_module"
INDEX_IDENTIFIERS = "index_identifiers"
MOST = 5
# At 30 s each, an hour and more: a job that is still open then is reported as open.
MAX_ROUNDS = 150


@dataclass(frozen=True, slots=True)
class Analysis:
    """What `analyse_module` found in one module."""

    module: str
    functions: int
    with_docstring: int
    longest_function: str
    longest_function_lines: int


def reply(conversation: Conversation) -> AssistantMessage | None:
    """Return the next reply; None if the question is another one or the tools are not on offer."""
    start = conversation.last_question(lambda text: "standard library" in text.lower())
    if start is None or not conversation.offers(LIST_MODULES, ANALYSE_MODULE):
        return None
    rounds = conversation.rounds_since(start)
    listed = _contents_of(LIST_MODULES, rounds)
    if not listed:
        return asking((LIST_MODULES, {}))
    due = _analyses_due(_module_names(listed[-1]), rounds, conversation)
    if due is not None:
        return due
    tickets = open_tickets(rounds)
    if tickets and conversation.offers(TASK_RESULT) and len(rounds) < MAX_ROUNDS:
        return fetching(tickets)
    return AssistantMessage(content=_answer(rounds, tickets))


def _analyses_due(
    modules: Sequence[str], rounds: Sequence[Round], conversation: Conversation
) -> AssistantMessage | None:
    """Return one reply with every analysis that has not been asked for, and the index."""
    analyses = [call for call, _ in _answered(rounds) if call.name == ANALYSE_MODULE]
    asked = {as_json_object(call.arguments).get("module") for call in analyses}
    calls: list[tuple[str, dict[str, Any]]] = [
        (ANALYSE_MODULE, {"module": module}) for module in modules if module not in asked
    ]
    if conversation.offers(INDEX_IDENTIFIERS) and not _contents_of(INDEX_IDENTIFIERS, rounds):
        calls.append((INDEX_IDENTIFIERS, {}))
    return asking(*calls) if calls else None


def _answer(rounds: Sequence[Round], open_jobs: Sequence[str]) -> str:
    found = list(_objects(rounds))
    analyses = [analysis for each in found if (analysis := _analysis(each)) is not None]
    if not analyses:
        return "I am the rehearsal model. No module could be analysed, so I cannot answer."
    sentences = [_most_functions(analyses), _longest_function(analyses), _docstring_share(analyses)]
    sentences += [_identifiers(each) for each in found if "identifiers" in each]
    sentences += [f"Task {job} had not finished when I stopped waiting." for job in open_jobs]
    unanswered = len(_contents_of(ANALYSE_MODULE, rounds)) - len(analyses)
    if unanswered > 0:
        sentences.append(f"{unanswered} of the modules could not be analysed and are not counted.")
    sentences.append("(Said by the rehearsal model: a deterministic stand-in, computed only from the tools' results.)")
    return " ".join(sentences)


def _most_functions(analyses: Sequence[Analysis]) -> str:
    ranked = sorted(analyses, key=lambda each: (-each.functions, each.module))[:MOST]
    ranking = ", ".join(f"{each.module} ({each.functions:,})" for each in ranked)
    return f"Of the {len(analyses)} modules analysed, these define the most functions: {ranking}."


def _longest_function(analyses: Sequence[Analysis]) -> str:
    longest = min(analyses, key=lambda each: (-each.longest_function_lines, each.module))
    return (
        f"The longest function is {longest.longest_function} in {longest.module}, "
        f"with {longest.longest_function_lines:,} lines."
    )


def _docstring_share(analyses: Sequence[Analysis]) -> str:
    functions = sum(each.functions for each in analyses)
    documented = sum(each.with_docstring for each in analyses)
    share = 100 * documented / functions if functions else 0.0
    return f"Of all {functions:,} functions, {share:.1f} % have a docstring ({documented:,})."


def _identifiers(index: dict[str, Any]) -> str:
    sentence = f"The index counts {index['identifiers']:,} distinct identifiers"
    most_common = index.get("most_common") or []
    if most_common:
        name, count = most_common[0]
        sentence += f", the most common being {name} ({count:,} times)"
    return sentence + "."


def _objects(rounds: Sequence[Round]) -> Iterator[dict[str, Any]]:
    """Yield every JSON object among the results; of a finished task, the object that it returned."""
    for call, content in _answered(rounds):
        answer = as_json_object(content)
        yield _returned(answer) if call.name == TASK_RESULT else answer


def _returned(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a task returned: under `result` or `content`, as an object or as its text; or the answer itself."""
    for key in ("result", "content"):
        value = answer.get(key)
        returned = as_json(value) if isinstance(value, str) else value
        if isinstance(returned, dict):
            return returned
    return answer


def _analysis(found: dict[str, Any]) -> Analysis | None:
    if not {"module", "functions"} <= found.keys():
        return None
    return Analysis(
        module=str(found["module"]),
        functions=int(found["functions"]),
        with_docstring=int(found.get("with_docstring") or 0),
        longest_function=str(found.get("longest_function") or ""),
        longest_function_lines=int(found.get("longest_function_lines") or 0),
    )


def _module_names(content: str) -> list[str]:
    listed = as_json(content)
    names = listed.get("modules") if isinstance(listed, dict) else listed
    return [str(name) for name in names] if isinstance(names, list) else []


def _contents_of(name: str, rounds: Sequence[Round]) -> list[str]:
    return [content for call, content in _answered(rounds) if call.name == name]


def _answered(rounds: Sequence[Round]) -> Iterator[tuple[RequestedCall, str]]:
    for each in rounds:
        yield from each.answered()
