"""The experiments of the paper on real Spark: `milepost bench control`.

In the order of reading:

- `events` what is put, and rules that cost something; `pipelines` the two pipelines that are run
- `load` the process that puts events, `hog` the processes that take a core, `environment` broker and folder
- `loop` the control loop with a script: what is offered, how it is steered, when the hog comes
- `account` what became of every event, and how long it took
- `run` what all runs share; `flowing` and `balancing` the runs; `bench` all of it: plots, a table and a line of JSON

Everything that is started here is stopped, whatever happens in between.
"""
