"""Other people's clients: programs that do not speak Milepost's protocol. Each gateway is a client of a broker.

A folder for each protocol: `zmq`. `values` has the forms of values, which the command line shares.
"""
