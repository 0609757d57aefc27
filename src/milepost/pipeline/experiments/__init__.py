"""The experiments of "Control Considerations for Scalable Event Processing", as `milepost bench control` runs them.

They are part of the package because that command, the demo and the documentation run them. Nothing else in the pipeline
imports them. In the order of reading:

- `plant` and `simulation`: the experiments on a simulated pipeline, without Spark
- `events`: the events, and rules with an adjustable cost; `pipelines`: the two pipelines that run on Spark
- `load`: the process that puts events; `hog`: the processes that occupy a core; `environment`: broker, folder and cores
- `script`: the control loop under a script, which sets the load, the controllers and the hog
- `account`: the outcome of every event, and its delay
- `run`: what all runs share; `flow_run` and `balance_run`: the runs; `bench`: all of them, with plots, a table and JSON

Every process that is started here is also stopped here, whatever fails in between.
"""
