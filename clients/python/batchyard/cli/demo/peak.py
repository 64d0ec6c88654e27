"""What the demo asks: the requests of a peak, of four task types, some in Chinese.

Never more than 40 requests of at most 24 tokens. The order is that of arrival: the urgent ones come
late, so that it shows who goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_TOKENS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One request to make. Times are in seconds; None: no limit."""

    task_type: str
    priority: int
    prompt: str
    max_wait_s: float | None = None
    timeout_s: float | None = None
    degrade: tuple[str, ...] = ()


def _summary(priority: int, prompt: str) -> Wish:
    return Wish(task_type="summarization", priority=priority, prompt=prompt)


def _class(priority: int, prompt: str) -> Wish:
    return Wish(task_type="classification", priority=priority, prompt=prompt)


def _question(priority: int, prompt: str) -> Wish:
    return Wish(task_type="question_answering", priority=priority, prompt=prompt)


def _code(priority: int, prompt: str) -> Wish:
    return Wish(task_type="code_generation", priority=priority, prompt=prompt)


# Alike in length, so that one by one and together do the same work.
_METALS: Final = (
    "copper", "silver", "glass", "rubber", "cotton", "timber", "paper", "leather",
    "marble", "carbon", "helium", "nickel", "bamboo", "cement", "butter", "pepper",
)  # fmt: skip
ROUND_SIZE: Final = 4
MEASURED: Final = tuple(
    _question(5, f"Name three uses of {material} and explain each.") for material in _METALS
)

WAVE: Final = (
    _summary(2, "Summarize: A queue holds work that nobody has time for yet. When it grows, the "
                "oldest work waits longest, unless somebody decides what is urgent."),
    _code(1, "写一个 Python 函数，判断一个整数是不是质数，并解释它。"),
    _class(3, "请判断这条评论的情感并说明理由：快递很慢，但是客服很耐心。"),
    _code(3, "Write a Python function that counts the words of a text, and explain it."),
    _question(1, "Why does the sea look blue? Explain it to a child."),
    _summary(4, "Summarize: The old bridge was closed in March. Since then the ferry has carried "
                "twice as many people, and the town now plans a second one."),
    _class(6, "Is this review positive or negative, and why? 'The room was small but spotless.'"),
    _question(5, "What is the difference between a queue and a stack? Give an example."),
    _code(6, "Write a SQL query that finds the ten newest orders, and explain it."),
    _summary(7, "用一句话概括：调度器把请求排队、合并成批次，再交给空闲的节点执行。"),
    _class(8, "Which topic is this, and why? 'The central bank left interest rates unchanged.'"),
    _question(8, "为什么天空是蓝色的？请简单说明。"),
    _code(9, "Write a Python function that reverses a string, and explain each step."),
    _summary(9, "Summarize: The night train leaves at ten, stops twice and arrives at six. "
                "Breakfast is served from five, and the beds are made up before departure."),
    _class(10, "Is this message urgent, and why? 'The cooling of rack four has failed.'"),
    _question(10, "A server is on fire. What should the person next to it do first, and why?"),
)  # fmt: skip

LATE: Final = (
    _summary(5, "Summarize: A new node has joined. It has four free slots and no work yet."),
    _class(7, "Is this good news or bad news, and why? 'Help has arrived.'"),
    _question(4, "What does it mean to scale out? Explain it in simple words."),
    _code(6, "Write a Python loop that prints the numbers from one to ten, and explain it."),
    _question(9, "新的服务器加入以后，等待时间会变长还是变短？为什么？"),
    _summary(3, "Summarize: The rush is over. What was waiting is being answered now."),
)  # fmt: skip


def impatient(*, max_wait_s: float, substitute: str) -> Wish:
    """It may wait only so long, and permits another model then."""
    return Wish(
        task_type="summarization",
        priority=1,
        prompt="Summarize: Better a short answer now than a good one too late.",
        max_wait_s=max_wait_s,
        degrade=(substitute,),
    )


def hopeless(*, timeout_s: float) -> Wish:
    """Its deadline is before an answer can be there."""
    return Wish(
        task_type="question_answering",
        priority=2,
        prompt="How far is it to the moon? I need it at once.",
        timeout_s=timeout_s,
    )
