"""DSPy: `dspy_predict.py ADDRESS`."""

from typing import Any

import dspy
from report import BASE_URL, MODEL, asking, filling_in, report

lm = dspy.LM(f"openai/{MODEL}", api_base=f"{BASE_URL}/v1", api_key="-", cache=False, num_retries=0)
dspy.configure(lm=lm)


def ask(question: str) -> Any:
    """The model itself: a signature asks for a form that a shortened answer may not have."""
    return {"text": lm(question)[0]}


def fill_in(question: str) -> Any:
    class Fill(dspy.Signature):
        what: str = dspy.InputField()
        city: str = dspy.OutputField()
        degrees: int = dspy.OutputField()

    with dspy.context(adapter=dspy.JSONAdapter()):
        answer = dspy.Predict(Fill)(what=question)
    return {"city": answer.city, "degrees": answer.degrees}


report(**asking(ask), **filling_in(fill_in))
