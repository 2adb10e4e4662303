"""Arithmetic on an expression that a model wrote: exact integers, floats, and the functions of a pocket calculator.

Nothing is evaluated but what is named here; every operation is checked for its cost before it is carried out.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field

from toolfleet import ToolError, tool
from toolfleet.workers.packs.pack_settings import Count, PackSettings, for_pack, read_pack_settings

SIGNIFICANT_DIGITS: Final = 15
"""What a float holds of a decimal number; the rest would be noise, as in 0.30000000000000004."""

MAX_DEPTH: Final = 100
"""Nesting of one expression; Python's own limit is not far beyond."""

MAX_ROUND_DIGITS: Final = 30
"""Rounding to 10 ** digits makes a number of as many digits on the way."""

Number = int | float


class CalculatorSettings(PackSettings):
    """Limits of the calculator."""

    model_config = for_pack("calculator")

    max_chars: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """Length of an expression; each character is at most one cheap operation."""

    max_digits: Annotated[int, Field(ge=20, le=4000)] = 1000
    """Digits of an integer, also of one on the way: beyond, an operation is refused before it is carried out."""

    max_list: Count = 200
    """Arguments of one function."""


def _power(base: Number, exponent: Number) -> Any:
    return base**exponent


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_ROUND_DIGITS:
        raise ToolError(f"round takes a whole number of digits up to {MAX_ROUND_DIGITS}")
    return round(number, digits) if digits else round(number)


OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

CONSTANTS: Final = {"pi": math.pi, "e": math.e, "tau": math.tau}

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs, "round": _round, "min": min, "max": max, "sum": lambda *numbers: sum(numbers),
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "sqrt": math.sqrt, "cbrt": math.cbrt, "isqrt": math.isqrt, "hypot": math.hypot,
    "exp": math.exp, "log": math.log, "ln": math.log, "log2": math.log2, "log10": math.log10,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "atan2": math.atan2, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh,
    "degrees": math.degrees, "radians": math.radians,
    "gcd": math.gcd, "lcm": math.lcm, "factorial": math.factorial, "comb": math.comb, "perm": math.perm,
    "pow": _power,
}  # fmt: skip


class Calculator:
    """Calculates within the limits of its settings."""

    def __init__(self, settings: CalculatorSettings) -> None:
        self._settings = settings

    @tool(read_only=True)
    async def calculate(self, expression: str) -> Number:
        """Calculate an arithmetic expression. Integers are exact, other numbers have 15 significant digits.

        Operators: + - * / // (rounds down) % ** and parentheses. Constants: pi, e, tau. Functions: abs, round, min,
        max, sum, floor, ceil, trunc, sqrt, cbrt, isqrt, hypot, exp, log(x, base), ln, log2, log10, sin, cos, tan, asin,
        acos, atan, atan2, sinh, cosh, tanh, degrees, radians, gcd, lcm, factorial, comb, perm, pow. Angles are radians.

        Args:
            expression: for example "sqrt(2) * (1 + 0.19) ** 3"
        """
        if len(expression) > self._settings.max_chars:
            raise ToolError(f"the expression has {len(expression)} characters, and at most "
                            f"{self._settings.max_chars} are calculated")  # fmt: skip
        try:
            result = self._value(_parsed(expression), 0)
        except ZeroDivisionError:
            raise ToolError("division by zero") from None
        except OverflowError:
            raise ToolError("a number on the way is too large") from None
        except (ValueError, TypeError) as error:
            raise ToolError(f"cannot be calculated: {error}") from None
        return result if isinstance(result, int) else float(f"{result:.{SIGNIFICANT_DIGITS}g}")

    def _value(self, node: ast.AST, depth: int) -> Number:
        if depth > MAX_DEPTH:
            raise ToolError(f"the expression is nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self._checked(value)
            case ast.Name(id=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return self._apply(OPERATORS[type(op)], self._value(operand, depth + 1))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._apply(OPERATORS[type(op)], self._value(left, depth + 1), self._value(right, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                if len(arguments) > self._settings.max_list:
                    raise ToolError(f"{name} takes at most {self._settings.max_list} numbers")
                return self._apply(FUNCTIONS[name], *(self._value(each, depth + 1) for each in arguments))
        raise ToolError(_complaint(node))

    def _apply(self, function: Callable[..., Any], *numbers: Number) -> Number:
        if _digits_of(function, numbers) > self._settings.max_digits:
            raise ToolError(f"the result would have more than {self._settings.max_digits} digits")
        return self._checked(function(*numbers))

    def _checked(self, value: Any) -> Number:
        if isinstance(value, complex):
            raise ToolError("the result is not a real number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ToolError("a number on the way is too large")
        if isinstance(value, int) and _digits(value) > self._settings.max_digits:
            raise ToolError(f"an integer would have more than {self._settings.max_digits} digits")
        return value  # type: ignore[no-any-return]  # the functions above give nothing else


def _parsed(expression: str) -> ast.AST:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deep or has a number too long"
        raise ToolError(f"not an arithmetic expression: {reason}") from None


def _digits_of(function: Callable[..., Any], numbers: tuple[Number, ...]) -> float:
    """About how many digits the functions have that can make large numbers of small ones; 0 for all others."""
    if function is _power and all(isinstance(number, int) for number in numbers):
        base, exponent = numbers
        return _digits(base) * max(exponent, 0)
    if function is math.factorial and numbers and numbers[0] > 1:
        return math.lgamma(numbers[0] + 1) / math.log(10)
    if function in (math.comb, math.perm) and numbers:
        # perm(n, k) is below n ** k, and comb below that.
        return _digits(numbers[0]) * min(max(numbers[-1], 0), max(numbers[0], 0))
    if function is math.lcm:
        return sum(map(_digits, numbers))
    return 0


def _digits(number: Number) -> float:
    if abs(number) <= 1:
        return 0
    return abs(int(number)).bit_length() * math.log10(2)


def _complaint(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            return f"{name!r} is unknown, or not used as it is meant; the description lists what there is"
        case ast.BinOp(op=ast.BitXor()):
            return "^ is not supported: a power is written **"
    return f"{ast.unparse(node)[:80]!r} is not arithmetic"


calculate = Calculator(read_pack_settings(CalculatorSettings)).calculate
