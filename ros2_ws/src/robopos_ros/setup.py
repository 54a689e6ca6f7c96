"""Build of `robopos_ros`: by colcon as an ament_python package, and by pip into the project's environment."""

import glob
import os
import sys

from setuptools import find_packages, setup

PACKAGE = "robopos_ros"
HERE = os.path.dirname(os.path.realpath(__file__))
# launch/ and configs/ros/ stand at the top of the repository, where people look for them.
TOP = os.path.normpath(os.path.join(HERE, "..", "..", ".."))


def shared_files(folder: str, pattern: str) -> list[str]:
    """Files of a top-level folder, relative to here; a line on stderr when the package stands alone."""
    found = sorted(glob.glob(os.path.join(TOP, folder, pattern)))
    if not found:
        print(f"{PACKAGE}: no {folder}/{pattern} in {TOP}; the share goes without them", file=sys.stderr)
    return [os.path.relpath(path, HERE) for path in found]


setup(
    name=PACKAGE,
    version="0.1.0",
    description="ROS 2 node around robopos: live predictions from a model bundle",
    license="Apache-2.0",
    packages=find_packages(exclude=["test"]),
    package_data={PACKAGE: ["loopback.xml"]},
    python_requires=">=3.10",
    # robopos and rclpy are found in the environment: rclpy comes from ROS 2, not always from a registry.
    install_requires=["setuptools"],
    extras_require={"test": ["pytest"]},
    zip_safe=True,
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]),
        (f"share/{PACKAGE}", ["package.xml"]),
        (f"share/{PACKAGE}/launch", shared_files("launch", "*.launch.py")),
        (f"share/{PACKAGE}/config", shared_files("configs/ros", "*.yaml")),
    ],
    entry_points={
        "console_scripts": [
            "predictor = robopos_ros.__main__:main",
            "play = robopos_ros.play:main",
        ]
    },
)
