"""The lifecycle node `predictor`: what happens in each transition, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter

from robopos.errors import RoboposError, ServingError
from robopos.serving import Engine
from robopos_ros.diagnostics import Report, input_status, node_status
from robopos_ros.health import InputHealth, Rates
from robopos_ros.inference import Inference
from robopos_ros.inputs import Inputs, message_class, needs_source_stamps
from robopos_ros.outputs import Outputs
from robopos_ros.parameters import PARAMETERS, declare, read
from robopos_ros.threads import use_one_thread

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class Predictor(LifecycleNode):
    """Messages in, predictions out, while active.

    Configure loads the bundle and makes the publishers; activate starts the inference thread and subscribes;
    deactivate undoes that, and the context is forgotten: a gap is a gap.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("predictor", **options)
        self._state = "unconfigured"
        self._problem = ""
        self._engine: Engine | None = None
        self._outputs: Outputs | None = None
        self._inputs: Inputs | None = None
        self._inference: Inference | None = None
        self._health: dict[str, InputHealth] = {}
        self._rates = Rates()
        self._refused_before: dict[str, int] = {}
        declare(self)
        self.settings = read(self)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # By a clock that always runs: simulated time may stand still, and that is worth a report.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(self.settings.diagnostics_period_s, self._publish_diagnostics, clock=steady)
        self.add_on_set_parameters_callback(self._check_parameters)

    @property
    def needs_source_stamps(self) -> bool:
        """Whether the executor must hand over the middleware's stamps with each message."""
        return self._engine is not None and needs_source_stamps(self._engine)

    # Transitions. A failed configure leaves the node unconfigured, alive, and says why.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the bundle."""
        self.settings = read(self)
        try:
            self._configure()
        except RoboposError as error:
            return self._fail("configure", str(error))
        except Exception as error:  # a broken driver, a device out of memory: the node must outlive it
            return self._fail("configure", f"{type(error).__name__}: {error}")
        self._state, self._problem = "inactive", ""
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to receive and to publish."""
        assert self._engine is not None and self._outputs is not None
        self._engine.reset("activate")
        self._health = {stream.name: InputHealth(stream.topic) for stream in self._engine.inputs}
        self._refused_before, self._rates = {}, Rates()
        self._inference = Inference(self._engine, self.settings, self._health, self._outputs.publish, self.get_logger())
        super().on_activate(state)
        self._inference.start()
        self._inputs = Inputs(self, self._engine, self._health, self.settings.qos_depth, self._inference.put)
        self._state, self._problem = "active", ""
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop to receive and to publish."""
        self._stop()
        self._state = "inactive"
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of the bundle."""
        self._release()
        self._state = "unconfigured"
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop from any state."""
        self._release()
        self._state = "finalized"
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an exception in a transition: back to the start."""
        self._release()
        self._state, self._problem = "unconfigured", "an error in a transition; the log says which"
        return SUCCESS

    def destroy_node(self) -> None:
        """Join the inference thread, then take the node down."""
        self._release()
        super().destroy_node()

    # What the transitions are made of.

    def _configure(self) -> None:
        if not self.settings.bundle:
            raise ServingError("the parameter 'bundle' is empty: set it to the folder of a bundle")
        use_one_thread()
        engine = Engine.load(self.settings.bundle, device=self.settings.device)
        window = engine.bundle.settings.window
        if self.settings.min_context > window:
            raise ServingError(
                f"the parameter 'min_context' is {self.settings.min_context}, but the model sees {window} messages"
            )
        for stream in engine.inputs:
            message_class(stream.type)  # not installed: say so now
        self._outputs = Outputs(self, engine)
        self._engine = engine
        topics = ", ".join(self.resolve_topic_name(stream.topic) for stream in engine.inputs)
        self.get_logger().info(
            f"bundle {self.settings.bundle} on {engine.device}, mode {engine.mode}; reads {topics}; "
            f"predicts {', '.join(engine.targets)}"
        )

    def _stop(self) -> None:
        # Subscriptions first: nothing comes in while the thread ends.
        if self._inputs is not None:
            self._inputs.destroy()
            self._inputs = None
        if self._inference is not None:
            self._inference.stop()
            self._inference = None

    def _release(self) -> None:
        self._stop()
        if self._outputs is not None:
            self._outputs.destroy()
            self._outputs = None
        self._engine = None

    def _fail(self, transition: str, reason: str) -> TransitionCallbackReturn:
        self.get_logger().error(f"{transition} failed: {reason}")
        self._release()
        self._problem = f"{transition} failed: {reason}"
        return FAILURE

    def _check_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = [p.name for p in parameters if p.name in PARAMETERS]
        if names and self._state != "unconfigured":
            reason = f"{', '.join(names)}: read on configure only; clean up first (the node is {self._state})"
            return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)

    def _publish_diagnostics(self) -> None:
        name, bundle = self.get_fully_qualified_name(), Path(self.settings.bundle).name
        problem, values = self._problem, {}
        if self._engine is not None:
            values |= {"device": str(self._engine.device), "mode": self._engine.mode}
        if self._inference is not None:
            problem = self._inference.failure or problem
            values |= self._inference.snapshot()
        message = DiagnosticArray()
        message.header.stamp = self.get_clock().now().to_msg()
        message.status.append(node_status(name, bundle, Report(self._state, problem, values)))
        if self._inputs is not None:
            now_ns = time.monotonic_ns()
            rates = self._rates.update({key: health.received for key, health in self._health.items()})
            for key, health in self._health.items():
                refused = health.refused - self._refused_before.get(key, 0)
                self._refused_before[key] = health.refused
                message.status.append(
                    input_status(
                        f"{name}: {health.topic}",
                        bundle,
                        health,
                        rates.get(key),
                        self.settings.max_input_age_s,
                        now_ns,
                        refused,
                    )
                )
        self._diagnostics.publish(message)
