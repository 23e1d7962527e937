"""The load generator: users in a closed loop or arrivals in an open loop, over HTTP/1.1, in a process of its own."""
