"""Settings that are or contain secrets are masked, and others are not."""

import json

import pytest
from IPython.core.error import UsageError
from support.stored import stored

from ddl_magics.options.parsing import parse
from ddl_magics.options.redaction import MASK, as_word, has_password, masked, safely_quoted, without_user


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hidden"),
        ("spark.hadoop.fs.s3a.access.key", "hidden"),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "hidden"),
        ("spark.hadoop.fs.azure.sas.data.lake.blob.core.windows.net", "hidden"),
        ("spark.ssl.keyPassword", "hidden"),
        ("spark.executorEnv.AWS_SESSION_TOKEN", "hidden"),
        ("spark.executorEnv.DB_PWD", "hidden"),
        ("spark.executorEnv.DB_PASS", "hidden"),
        ("spark.executorEnv.PGPASS", "hidden"),
        ("spark.ssl.ui.keyPass", "hidden"),
        ("spark.executorEnv.KAGGLE_KEY", "hidden"),
        ("spark.executorEnv.OPENAI", "sk-hiddenhiddenhiddenhidden"),
        ("spark.executorEnv.GITHUB", "ghp_hidden890123456789012345"),
        ("spark.executorEnv.SLACK", "xoxb-hidden-1234567"),
        ("spark.executorEnv.CLOUD", "AKIAHIDDEN1234567890"),
        ("spark.executorEnv.WEB", "eyJhiddenhidden.eyJhiddenhidden.hidden"),
        ("spark.executor.extraJavaOptions", "-Ddb.pass=hidden"),
        ("spark.driver.extraJavaOptions", "-Xmx1g -Djavax.net.ssl.trustStorePassword=hidden"),
        ("spark.executorEnv.DATABASE", "postgresql://me:hidden@host/db"),
        ("spark.executorEnv.STORE", "https://lake.blob.core.windows.net/data?sv=2024&sig=hidden"),
        ("spark.executorEnv.CONNECTION", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hidden"),
    ],
)
def test_secrets_are_masked(key, value):
    assert masked({key: value}) == {key: MASK}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.executor.memory", "4g"),
        ("spark.driver.extraJavaOptions", "-XX:+UseG1GC -Dfile.encoding=UTF-8"),
        ("spark.hadoop.fs.defaultFS", "wasbs://data@lake.blob.core.windows.net/"),
        ("spark.master", "spark://host:7077"),
        ("spark.yarn.queue", "training"),
        ("spark.sql.sort.key", "id"),
        ("spark.network.bypass", "true"),
        ("spark.executorEnv.LIBRARY", "scikit-learn-with-a-long-name-of-many-words"),
    ],
)
def test_the_rest_is_kept(key, value):
    assert masked({key: value}) == {key: value}


def test_no_stored_run_has_a_secret(data_dir):
    folder = stored(conf={"spark.driver.extraJavaOptions": "-Dpassword=hidden", "spark.executor.cores": "2"})
    text = (folder.path / "run.json").read_text()
    assert "hidden" not in text and json.loads(text)["spec"]["conf"]["spark.executor.cores"] == "2"


@pytest.mark.parametrize(
    ("remote", "kept"),
    [
        ("https://me:hid/d@en@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://hidden@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://me:hi@dden@github.com/a", "https://github.com/a"),
        ("https://host:8080/a@b/c", "https://host:8080/a@b/c"),
        ("ssh://git@host:22/a.git", "ssh://host:22/a.git"),
    ],
)
def test_a_remote_has_no_user_and_no_password(remote, kept):
    assert without_user(remote) == kept


def test_a_password_may_have_slashes_and_a_port_is_none():
    assert has_password("s3a://key:ab/cd+e@bucket/x") and has_password("s3a://:pw@bucket")
    assert not has_password("hdfs://host:8020/user/jane@corp.com/x") and not has_password("wasbs://data@lake.net/a:b")
    with pytest.raises(UsageError, match="the URI holds a password") as caught:
        parse("--out s3a://key:ab/hidden@bucket/x")
    assert "hidden" not in str(caught.value)
    assert parse("--out hdfs:///models/tokens").out == "hdfs:///models/tokens"


@pytest.mark.parametrize("shown", [as_word, safely_quoted])
def test_no_message_repeats_a_secret(shown):
    for secret in ("postgresql://me:hidden@host/db", "token=hidden", "--token=ghp_hidden890123456789012345"):
        assert shown(secret) == MASK
    assert shown("a=1").strip("'") == "a=1" and shown("digits").strip("'") == "digits"
