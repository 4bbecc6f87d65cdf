"""The compiled record codec, and which packages there are. Everything else about the package is in setup.cfg.

Optional twice over: without Cython it is left out, without a compiler the build goes on without it. gq_proto.codec then runs
the pure one, and `gqctl status` says so.
"""

from glob import glob

from setuptools import Extension, find_packages, setup


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    codec = Extension("gq_proto._codec", ["gq_proto/_codec.pyx"], depends=["gq_proto/_codec.h", *glob("gq_proto/compiled/*.pxi")],
                      include_dirs=["gq_proto"], extra_compile_args=["-O3"])
    modules: list[Extension] = cythonize([codec], language_level=3)
    for module in modules:
        module.optional = True     # cythonize makes new ones and forgets it
    return modules


# setup.cfg can name one folder to look in, and gq_spark is beside its jobs.
setup(ext_modules=extensions(), packages=[*find_packages(include=["gq_*"]), *find_packages("spark", include=["gq_*"])],
      package_dir={"gq_spark": "spark/gq_spark"})
