"""The ROS 2 shell around `robopos.serving.Engine`: the lifecycle node `predictor`."""
