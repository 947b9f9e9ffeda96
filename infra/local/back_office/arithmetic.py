"""Sums for people: + - * / and parentheses, and nothing a name could reach."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Final

MAX_CHARACTERS: Final = 400  # Also bounds how deep an expression nests, so that the walk stays far from the recursion limit.
_ALLOWED: Final = frozenset("0123456789.+-*/() ")


def _divide(dividend: float, divisor: float) -> float:
    return dividend / divisor


_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[float], float]]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def evaluate(expression: str) -> float:
    """Work an expression out, in floats, rounded to 2 decimals.

    Raises:
        ValueError: Not an expression of numbers, + - * / and parentheses, too long, or without a finite result.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ValueError("the expression is too long")
    if not _ALLOWED.issuperset(expression):
        raise ValueError("invalid characters in expression")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError("the expression cannot be read") from error
    except ZeroDivisionError as error:
        raise ValueError("division by zero") from error
    except OverflowError as error:
        raise ValueError("the result is too large") from error
    if not math.isfinite(value):
        raise ValueError("the result is too large")
    return round(value, 2)


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return _UNARY[type(node.op)](_value(node.operand))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](_value(node.left), _value(node.right))
        case _:
            raise ValueError("only + - * / and parentheses are known")
