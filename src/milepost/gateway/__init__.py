"""Gateways for programs that do not speak Milepost's protocol. Each gateway is a client of a broker.

There is a folder for each protocol: `zmq`. `values` has the JSON and BSON forms of values, which the command line
shares.
"""
