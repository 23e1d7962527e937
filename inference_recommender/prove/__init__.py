"""Proves that a recommended fleet keeps its objective, with open-loop arrivals at the rates that it would get.

loads        the rates: each instance's share at the peak, and after the loss of an instance or a zone. Pure
sequential   the test of the limit at one rate, which looks now and then and stops when it is clear. Pure
proving      both loads one after another, and the verdict. Pure
target       the endpoint or server that is asked, and the refusals; the AWS adapter
kept         the proof in the recommendation and in the reports
"""
