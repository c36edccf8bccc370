"""Runs in a stock Pyodide: combinations of features (kit/feature_table.py), whose tasks are those of kit/row_tasks.py;
their results, as JSON."""

import base64
import json

from pyruntime import InferenceSession, RunOptions, SessionOptions, TrainingSession, on

EMPTY = {"growing caches": [1, 1, 0, 1], "static caches": [1, 1, 32, 1], "states": [1, 1]}


class Row:
    def __init__(self, task):
        self.task, self.row, self.events = task, task["row"], []

    def has(self, feature):
        return feature in self.row.values()

    def run(self):
        end = on("session", lambda event: self.events.append(event["type"]))
        try:
            return list(getattr(self, self.row["caller"])())
        finally:
            end()

    def options(self):
        options = SessionOptions()
        if self.has("memory limits"):
            options.memory_limit = 64 << 20
        if self.has("time-outs"):
            options.compile_time_limit = 60.0
        if self.row["caller"] != "training":
            options.adapters = {name: base64.b64decode(data) for name, data in self.task["adapters"].items()}
        return options

    def active(self):
        options = RunOptions()
        for name, weight in self.task["active"].items():
            options.add_active_adapter(name, weight)
        return options

    def watched(self, session, kind):
        if self.has("metrics and events"):
            metrics = session.metrics()
            assert metrics["runs"] >= 1 and metrics["failed"] == 0, metrics
            assert {"created", kind} <= set(self.events), self.events

    def runs(self):
        model = base64.b64decode(self.task["model"])
        session = InferenceSession(model, self.options())
        self.other = InferenceSession(model) if self.has("several sessions") else None
        half = self.decoding(session) if self.task["decodes"] else self.plain(session)
        for _ in range(2):
            yield next(half)
            if self.has("trim"):
                session.trim()
            if self.other:
                feeds = self.feeds([1, 2], 0, self.empty()) if self.task["decodes"] else {"x": self.task["feeds"][0]}
                self.other.run(None, feeds)
        self.watched(session, "run")

    def plain(self, session):
        for _ in range(2):
            yield [session.run(None, {"x": x}, self.active())[0].tolist() for x in self.task["feeds"]]

    def empty(self):
        shape = EMPTY[self.row["caches"]]
        return [[[]]] if 0 in shape else zeros(shape)

    def feeds(self, tokens, at, past):
        feeds = {"input_ids": [tokens], "past_state.0" if self.has("states") else "past_key_values.0.key": past}
        if self.has("static caches"):
            feeds["cache_position"] = list(range(at, at + len(tokens)))
        return feeds

    def decoding(self, session):
        tokens, cached, past = [*self.task["prompts"][0]], 0, self.empty()
        for count in self.task["tokens"]:
            found = []
            while len(found) < count:
                logits, past = session.run(None, self.feeds(tokens[cached:], cached, past), self.active())
                cached = len(tokens)
                last = logits.tolist()[0][-1]
                found.append(last.index(max(last)))
                tokens.append(found[-1])
            yield [found]

    def training(self):
        def opened():
            return TrainingSession(
                base64.b64decode(self.task["model"]), loss={"mse": "y"}, lora=self.task["lora"],
                optimizer={"sgd": {"rate": self.task["rate"]}}, sess_options=self.options(),
            )  # fmt: skip

        session = opened()
        other = opened() if self.has("several sessions") else None
        for number in range(2):
            loss = session.step(self.batch(number)).loss
            session.export("/trained.onnx")
            with open("/trained.onnx", "rb") as file:
                yield [loss, base64.b64encode(file.read()).decode()]
            if other:
                other.step(self.batch(2))
            if self.has("trim"):
                session.trim()
        self.watched(session, "step")

    def batch(self, number):
        return {"x": self.task["feeds"][number], "target": self.task["targets"][number]}


def zeros(shape):
    return [zeros(shape[1:]) for _ in range(shape[0])] if shape else 0.0


def refused(action, *given):
    try:
        action(*given)
    except Exception as error:
        return type(error).__name__
    return "no error"


def main(given):
    arg = json.loads(given)
    return json.dumps({
        "rows": [Row(task).run() for task in arg["tasks"]],
        "programs": [refused(InferenceSession, base64.b64decode(data)) for data in arg["programs"]],
    })  # fmt: skip
