"""Checks an account before a deployment. Makes no construct."""
