"""Configuration: layers of settings, agents and their prompts. It reads files and decides nothing.

Project files (`deskmate.toml`, `.deskmate/`) are deliberately absent until there is a store of trust.
"""
