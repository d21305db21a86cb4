"""The payloads of the log's facts, one class each; `model.events` is the door to them all."""
