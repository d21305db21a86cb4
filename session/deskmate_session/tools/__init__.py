"""What the model can do: one module a tool, its prompt in a `.md` beside it.

A tool computes what it wants (`prepare`), the runtime asks for it, then it runs. Tools know no log, no
provider and no editor; everything comes from their `ToolContext`. Deliberately absent: rules and answers.
"""
