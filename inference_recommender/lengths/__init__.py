"""How latency follows from the lengths of a request and its answer, and what that makes of other payloads.

tokens      counts, cuts and joins payloads by the workload's own tokenizer
asking      posts requests over one connection, and keeps a load under way beside them
served      the server that is asked: a Triton of this machine whose answers have a stated length, or any other
throughput  drives it with closed-loop users of one kind of payloads
survey      asks requests of chosen lengths one at a time, alone and beside the load, then drives kinds of payloads
surface     the medians that were measured, and the model that is fitted to them. Pure
shifts      capacity, fleet and latency where the payloads' lengths shift. Pure
result      the document that is kept, and its sentences. Pure
evidence    its report. Pure
terminal    prints it
"""
