"""The steps of a release, each a script, and what their scripts call."""
