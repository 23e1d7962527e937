"""Proves that a recommended fleet keeps its objective, with open-loop arrivals at the rates that it would get.

loads        the rates: each instance's share at the peak, and after the loss of an instance or a zone. Pure
sequential   the test of the limit at one rate, which looks now and then and stops when it is clear. Pure
proving      both loads one after another, and the verdict. Pure
refusals     the proofs that a target cannot give. Pure
kept         the proof in the recommendation and in the reports
"""
