"""The ROS 2 shell around `robopos.serving.Engine`: the lifecycle node `predictor`.

`python -m robopos_ros` runs it, `python -m robopos_ros.lockstep` checks it against a log.
"""
