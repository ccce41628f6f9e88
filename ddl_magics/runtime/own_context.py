"""A run's own connections to the JVM, where pyspark would share them with the cells of the session.

Under Livy, Python's threads are not pinned to threads of the JVM (PYSPARK_PIN_THREAD=false): each call takes any idle
connection, and with it a thread of the JVM that has the job group of whatever used it last. Our Spark jobs would get
the group of the statement that runs, and be cancelled with it; the statement's would lose theirs. A context over a
gateway of its own shares nothing with them but the JVM.
"""

import warnings


def of(sc):
    """The SparkContext `sc` over connections of a new gateway; `sc` itself where threads are pinned."""
    from py4j.clientserver import ClientServer
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext

    if isinstance(sc._gateway, ClientServer):
        return sc

    class OwnContext(SparkContext):
        def __init__(self):
            # What Python keeps of the context is the same; what reaches the JVM goes by the new gateway.
            self.__dict__.update(sc.__dict__)
            self._gateway = JavaGateway(gateway_parameters=sc._gateway.gateway_parameters)
            self._jvm = self._gateway.jvm
            self._jsc = self._jvm.org.apache.spark.api.java.JavaSparkContext(sc._jsc.sc())
            self._conf = SparkConf(_jconf=self._jsc.sc().conf())

        def getConf(self):
            return self._conf  # to be read; pyspark's copy is made over the session's connections

    return OwnContext()


def collect(rdd, group, description):
    """`rdd.collect()` as a Spark job of the group."""
    # Its successor wants threads to be pinned.
    warnings.filterwarnings("ignore", "Deprecated in 3.1, Use pyspark.InheritableThread", FutureWarning)
    return rdd.collectWithJobGroup(group, description)


def rdd_of(frame, sc, group):
    """`frame.rdd` for the context `sc`, as `of` gives it, in the job group.

    With adaptive execution Spark runs jobs to answer this: all that comes before the last shuffle. No other thread may
    use `sc` meanwhile.
    """
    sc.setJobGroup(group, "rows of --data")
    if sc._gateway is sc.__class__._gateway:
        return frame.rdd
    from pyspark import RDD, serializers

    # The frame itself belongs to the session's gateway: ours gets at it by reflection.
    kind = sc._jvm.java.lang.Class.forName("org.apache.spark.sql.Dataset")
    method = kind.getMethod("javaToPython", sc._gateway.new_array(sc._jvm.java.lang.Class, 0))
    rows = method.invoke(frame._jdf, sc._gateway.new_array(sc._jvm.java.lang.Object, 0))
    pickled = getattr(serializers, "CPickleSerializer", None) or serializers.PickleSerializer
    return RDD(rows, sc, serializers.BatchedSerializer(pickled()))
