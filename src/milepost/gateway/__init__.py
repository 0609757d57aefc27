"""Other people's clients: programs that do not speak Milepost's protocol. Each gateway is a client of a broker.

`zmq.Gateway` serves put, get, ack, subscribe and unsubscribe to ZeroMQ's REQ sockets; docs/zeromq.md has the bodies.
`values` has the forms of values, which the command line shares.
"""
