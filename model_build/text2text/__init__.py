"""The text2text task: a T5 checkpoint exported, compiled and compared with its original."""
