"""The lifecycle node `predictor`: what happens in each transition, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockChange, ClockType, JumpHandle, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger

from robopos import __version__
from robopos.errors import RoboposError, ServingError
from robopos.model import Bundle, bundle_hash
from robopos.serving import STEPS, Engine
from robopos_ros.black_box import BlackBox
from robopos_ros.health import InputHealth
from robopos_ros.inference import Inference
from robopos_ros.inputs import Inputs, needs_source_stamps
from robopos_ros.outputs import Outputs
from robopos_ros.parameters import Settings, changed, declare, ignored_qos_overrides, read, unknown_overrides
from robopos_ros.reporter import Reporter, Watched
from robopos_ros.threads import use_one_thread
from robopos_ros.types import message_class
from robopos_ros.warm_up import count_anew, warm_up

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
REFRESH_PERIOD_S = 0.2  # for subscriptions that no publisher can serve as they are


class Predictor(LifecycleNode):
    """Messages in, predictions out, while active.

    Configure loads the bundle, computes once and makes the publishers; activate starts the inference thread and
    subscribes; deactivate undoes that, and the context is forgotten: a gap is a gap.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("predictor", **options)
        self._engine: Engine | None = None
        self._outputs: Outputs | None = None
        self._inputs: Inputs | None = None
        self._inference: Inference | None = None
        self._jumps: JumpHandle | None = None  # made last
        declare(self)
        self.settings = read(self)
        for text in unknown_overrides(self):
            self.get_logger().warning(text)
        self._reporter = Reporter(self, self.settings)
        self._refresh = self.create_timer(
            REFRESH_PERIOD_S, self._refresh_inputs, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self.add_on_set_parameters_callback(self._check_parameters)
        self._reset = self.create_service(Trigger, "~/reset", self._on_reset)
        # Simulated time that goes back: a recording begins anew, and what was heard belongs to its end.
        back = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True)
        self._jumps = self.get_clock().create_jump_callback(back, post_callback=self._on_jump)

    @property
    def needs_source_stamps(self) -> bool:
        """Whether the executor must hand over the middleware's stamps with each message."""
        return self._engine is not None and needs_source_stamps(self._engine)

    # Transitions. A failed one leaves the node as it was before, alive, and says why.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the bundle."""
        try:
            self._settle(read(self))
            self._configure()
        except Exception as error:  # a broken driver, a device out of memory: the node must outlive it
            self._release()
            return self._fail("configure", error)
        self._reporter.enter("inactive")
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to receive and to publish."""
        try:
            self._activate(state)
        except Exception as error:  # rclpy would swallow it
            self._stop()
            super().on_deactivate(state)
            return self._fail("activate", error)
        self._reporter.enter("active")
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop to receive and to publish."""
        self._stop()
        self._reporter.enter("inactive")
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of the bundle."""
        self._release()
        self._reporter.enter("unconfigured")
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop from any state."""
        self._release()
        self._reporter.enter("finalized")
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an exception in a transition: back to the start."""
        self._release()
        self._reporter.enter("unconfigured", "an error in a transition")
        return SUCCESS

    def destroy_node(self) -> None:
        """Join the inference thread, then take the node down."""
        if self._jumps is not None:  # else the constructor failed, and rclpy cleans up after it
            self._release()
            self._jumps.unregister()
        super().destroy_node()

    # What the transitions are made of.

    def _configure(self) -> None:
        settings = self.settings
        if not settings.bundle:
            raise ServingError("the parameter 'bundle' is empty: set it to the folder of a bundle")
        use_one_thread()
        loaded = Bundle.load(settings.bundle)
        bundle = loaded.with_admission(settings.max_gap_s or None, settings.max_lateness_s or None)
        engine = Engine(bundle, device=settings.device, step=step_of(settings.step))
        self._check_context(settings.min_context, engine)
        for stream in engine.inputs:
            message_class(stream.type)  # not installed: say so now
            if stream.encoding != "cdr":
                raise ServingError(
                    f"stream {stream.name} was trained on messages in the encoding {stream.encoding}; "
                    "ROS 2 sends cdr: train on a ROS 2 log"
                )
        warm_up(engine)
        self._outputs = Outputs(self, engine, settings)
        self._engine = engine
        folder = Path(settings.bundle).resolve()
        self._reporter.facts = {
            "bundle": folder.name,
            "bundle_sha256": bundle_hash(folder),
            "device": str(engine.device),
            "mode": engine.mode,
            "step": settings.step,
        }
        topics = ", ".join(self.resolve_topic_name(stream.topic) for stream in engine.inputs)
        self.get_logger().info(
            f"bundle {settings.bundle} on {engine.device}, mode {engine.mode}, step {settings.step}; reads {topics}; "
            f"predicts {', '.join(engine.targets)}"
        )
        for name, described in self._outputs.described.items():
            self.get_logger().info(f"{name} at {settings.publish_horizon_s:g} s as {described}")

    def _activate(self, state: LifecycleState) -> None:
        assert self._engine is not None and self._outputs is not None
        engine, settings = self._engine, self.settings
        count_anew(engine)
        engine.reset("activate")
        health = {s.name: InputHealth(self.resolve_topic_name(s.topic)) for s in engine.inputs}
        clock = self.get_clock()
        self._inference = Inference(
            engine,
            settings,
            health,
            self._outputs.publish,
            self.get_logger(),
            lambda: int(clock.now().nanoseconds),
            self._open_black_box(engine),
        )
        super().on_activate(state)
        self._inference.start()
        self._inputs = Inputs(self, engine, health, settings, self._inference)
        for text in ignored_qos_overrides(self):
            self.get_logger().warning(text)
        self._reporter.watched = Watched(engine, self._inference, health, self._outputs)

    def _check_context(self, min_context: int, engine: Engine) -> None:
        window = engine.bundle.settings.window
        if min_context > window:
            raise ServingError(f"the parameter 'min_context' is {min_context}, but the model sees {window} messages")

    def _open_black_box(self, engine: Engine) -> BlackBox | None:
        if not self.settings.black_box:
            return None
        facts = {key: str(value) for key, value in self._reporter.facts.items()} | {"robopos": __version__}
        logger = self.get_logger()
        return BlackBox(
            Path(self.settings.black_box).expanduser(), engine.inputs, facts, lambda text: logger.error(text)
        )

    def _stop(self) -> None:
        # Subscriptions first: nothing comes in while the thread ends.
        self._reporter.watched = None
        if self._inputs is not None:
            self._inputs.destroy()
            self._inputs = None
        if self._inference is not None:
            self._inference.stop()
            if self._inference.black_box is not None:
                self._inference.black_box.close()
            self._inference = None

    def _release(self) -> None:
        self._stop()
        if self._outputs is not None:
            self._outputs.destroy()
            self._outputs = None
        self._engine = None
        self._reporter.facts = {}

    def _fail(self, transition: str, error: Exception) -> TransitionCallbackReturn:
        reason = str(error) if isinstance(error, RoboposError) else f"{type(error).__name__}: {error}"
        self._reporter.problem = f"{transition} failed: {' '.join(reason.split())}"
        self.get_logger().error(self._reporter.problem)
        return FAILURE

    # What comes from outside while it runs.

    def _settle(self, settings: Settings) -> None:
        self.settings = settings
        self._reporter.change(settings)
        if self._inference is not None:
            self._inference.change(settings)

    def _check_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        new = changed(self.settings, parameters, self._reporter.state)
        if isinstance(new, str):
            return SetParametersResult(successful=False, reason=new)
        try:
            if self._engine is not None:
                self._check_context(new.min_context, self._engine)
        except ServingError as error:
            return SetParametersResult(successful=False, reason=str(error))
        if new != self.settings:
            self._settle(new)
        return SetParametersResult(successful=True)

    def _refresh_inputs(self) -> None:
        if self._inputs is not None:
            self._inputs.refresh()

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._inference is None:
            response.success, response.message = False, f"nothing to forget: the node is {self._reporter.state}"
        else:
            self._inference.forget("asked by service")
            response.success, response.message = True, "the context is forgotten before the next message"
        return response

    def _on_jump(self, jump: TimeJump) -> None:
        if self._inputs is not None and self._inference is not None:
            changed_clock = jump.clock_change in (ClockChange.ROS_TIME_ACTIVATED, ClockChange.ROS_TIME_DEACTIVATED)
            self._inputs.arrivals.forget()
            self._inference.forget("use_sim_time was changed" if changed_clock else "simulated time went back")


def step_of(text: str) -> str | list[str]:
    """The parameter `step` as the engine takes it: a word of `STEPS`, or the files that the commas part."""
    return text if text in STEPS else [path.strip() for path in text.split(",")]
